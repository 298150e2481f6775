// SPDX-License-Identifier: Apache-2.0
// The tables of `nccl-exporter top`, and its findings.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "exporter/cli/top_line.h"
#include "exporter/findings/findings_text.h"
#include "exporter/findings/rank_view.h"
#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kRateSeconds = 5;   // rates and means are over this time
constexpr size_t kMostFindings = 4;  // the tables must stay visible on a small screen
constexpr size_t kTrendSteps = 30, kNarrowTrendSteps = 10;
constexpr size_t kNarrowColumns = 110;

std::string Scaled(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes{"", "k", "M", "G", "T", "P"};
  if (!std::isfinite(value)) return "-";
  size_t prefix = 0;
  for (; value >= 999.5 && prefix + 1 < kPrefixes.size(); ++prefix) value /= 1000;
  return fmt::format("{:.{}f} {}{}", value,
                     value >= 100 || value == 0 ? 0
                     : value >= 10              ? 1
                                                : 2,
                     kPrefixes[prefix], unit);
}

// Bytes per second of the fastest rank, which waits for nobody; NaN where nothing was timed.
double TransferOf(const CommunicatorOnNode& communicator, Function function,
                  const RanksWindow& recent) {
  double fastest = std::numeric_limits<double>::quiet_NaN();
  for (const RankOnNode& rank : communicator.ranks) {
    const auto found = recent.ranks.find({communicator.key, rank.communicator->rank});
    if (found == recent.ranks.end()) continue;
    double bus_bytes = 0, busy_seconds = 0;
    for (const TrafficDelta& traffic : found->second.traffic) {
      if (traffic.function != function) continue;
      bus_bytes +=
          BusBytes(function, traffic.timed_bytes, static_cast<uint32_t>(communicator.key.ranks));
      busy_seconds += static_cast<double>(traffic.busy_ns) / 1e9;
    }
    if (bus_bytes > 0 && busy_seconds > 0) fastest = std::fmax(fastest, bus_bytes / busy_seconds);
  }
  return fastest;
}

// The newest steps as bars, the highest one the longest mean time.
std::string Trend(const NodeHistory& history, const collector::CommunicatorKey& key,
                  Function function, size_t steps) {
  constexpr std::array<std::string_view, 8> kBars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t first = history.steps() - std::min(history.steps(), steps);
  std::vector<double> means;
  double top = 0;
  for (size_t step = first; step < history.steps(); ++step) {
    const ActivityDelta* const activity = history.At(step, key, function);
    means.push_back(activity == nullptr ? std::numeric_limits<double>::quiet_NaN()
                                        : activity->MeanDurationSeconds());
    if (means.back() > top) top = means.back();
  }
  std::string text;
  for (const double mean : means) {
    text += mean >= 0 && top > 0 ? kBars[std::min<size_t>(static_cast<size_t>(mean / top * 8), 7)]
                                 : " ";
  }
  return text;
}

std::string_view StyleOf(const Finding& finding) {
  return finding.severity == Severity::kInfo ? std::string_view() : kCulpritStyle;
}

}  // namespace

std::vector<TopLine> FindingLines(const Judgement& judgement, int64_t now_ns, size_t columns) {
  std::vector<TopLine> lines;
  const auto add = [&](std::string_view text, std::string_view style) {
    for (std::string& line : Wrapped(text, columns)) lines.push_back({std::move(line), style});
  };
  if (judgement.findings.empty()) {
    add(NothingFoundText(judgement), {});
    return lines;
  }
  const Finding& worst = judgement.findings.front();
  add(worst.headline, StyleOf(worst));
  std::string cost = worst.cost.empty() ? "" : "Cost: " + worst.cost;
  if (worst.since_realtime_ns != 0) {
    cost +=
        fmt::format("{} {} ({}).", cost.empty() ? "Since" : ", since",
                    ClockText(worst.since_realtime_ns), AgeText(worst.since_realtime_ns, now_ns));
  }
  if (!cost.empty()) add(cost, {});
  if (!worst.next.empty()) add("Next: " + worst.next, {});
  const size_t shown = std::min(kMostFindings, judgement.findings.size());
  for (size_t i = 1; i < shown; ++i) {
    const Finding& finding = judgement.findings[i];
    lines.push_back({Cut(finding.headline, columns), StyleOf(finding)});
  }
  if (judgement.findings.size() > shown) {
    add(CountText(judgement.findings.size() - shown, "further finding") + ": --json lists all.",
        {});
  }
  return lines;
}

std::vector<TopLine> CollectiveLines(const std::vector<CommunicatorOnNode>& communicators,
                                     const NodeHistory& history, size_t columns) {
  const bool is_narrow = columns != 0 && columns < kNarrowColumns;
  TextTable table({{"COMMUNICATOR", true},
                   {"COLLECTIVE", true},
                   {"OPERATIONS"},
                   {"BYTES", false, 2},
                   {"MEAN TIME"},
                   {"BUS BANDWIDTH"},
                   {"TREND OF TIME", true, 1}});
  const std::vector<std::string> names = CommunicatorNames(communicators);
  const RanksWindow recent_ranks = history.RecentRanks(kRateSeconds);
  for (size_t i = 0; i < communicators.size(); ++i) {
    const collector::CommunicatorKey& key = communicators[i].key;
    const auto ranks = static_cast<double>(communicators[i].ranks.size());
    for (size_t id = 0; id < kFunctionCount; ++id) {
      const auto function = static_cast<Function>(id);
      const HistoryWindow recent = history.Recent(key, function, kRateSeconds);
      const ActivityDelta& activity = recent.activity;
      if (activity.operations == 0) continue;
      const auto rate = [&](uint64_t count) {
        return static_cast<double>(count) / recent.seconds / ranks;
      };
      table.Add({names[i], std::string(TraitsOf(function).name),
                 Scaled(rate(activity.operations), "/s"), Scaled(rate(activity.bytes), "B/s"),
                 DurationText(activity.MeanDurationSeconds()),
                 Scaled(TransferOf(communicators[i], function, recent_ranks), "B/s"),
                 Trend(history, key, function, is_narrow ? kNarrowTrendSteps : kTrendSteps)});
    }
  }
  std::vector<TopLine> lines;
  for (std::string& text : table.Lines(columns)) lines.push_back({std::move(text)});
  lines.front().style = kTitleStyle;
  return lines;
}

std::vector<TopLine> RankLines(const std::vector<RankView>& ranks, size_t columns) {
  std::vector<TopLine> lines;
  for (std::string& text : RankTable(ranks, RankColumns::kTop, 0).Lines(columns))
    lines.push_back({std::move(text)});
  lines.front().style = kTitleStyle;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].is_waiting) lines[i + 1].style = kWaitingStyle;
    if (ranks[i].is_culprit) lines[i + 1].style = kCulpritStyle;
  }
  return lines;
}

}  // namespace nccl_exporter::exporter
