// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/top_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/rank_view.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/text/text_table.h"
#include "exporter/text/time_text.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kRateSeconds = 5;   // rates and means are over this time
constexpr size_t kMostFindings = 4;  // the tables must stay visible on a small screen
constexpr std::string_view kCulpritStyle = "\x1b[1;31m", kWaitingStyle = "\x1b[2m",
                           kTitleStyle = "\x1b[1m", kPlainStyle = "\x1b[0m";

// Without line feed and control characters. The style is a control sequence, and left out where
// colours are off; an empty one is plain.
struct TopLine {
  std::string text;
  std::string_view style = {};
};
using TopLines = std::vector<TopLine>;

void Append(const std::vector<std::string>& texts, std::string_view style, TopLines& lines) {
  for (const std::string& text : texts) lines.push_back({text, style});
}

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

// The job of all communicators; where there are several, the table of ranks has them.
std::string OnlyJobText(const std::vector<CommunicatorOnNode>& communicators) {
  const auto is_of_first = [&](const CommunicatorOnNode& one) {
    return JobKeyOf(one.key) == JobKeyOf(communicators.front().key);
  };
  if (communicators.empty() || !std::ranges::all_of(communicators, is_of_first)) return "";
  const JobKey job = JobKeyOf(communicators.front().key);
  const std::string name = JobText(*communicators.front().ranks.front().process);
  return "  " + name +
         (job.job.empty() && job.name_space.empty() ? "" : fmt::format(" of user {}", job.uid));
}

TopLine Head(const collector::NodeSnapshot& node,
             const std::vector<CommunicatorOnNode>& communicators) {
  constexpr size_t kSeconds = sizeof("2023-11-14T22:13:20") - 1;
  std::string text = fmt::format(
      "{}Z  {}  {}{}", TimeText(node.taken_realtime_ns).substr(0, kSeconds),
      node.segments.live == 1 ? "1 process" : fmt::format("{} processes", node.segments.live),
      CountText(communicators.size(), "communicator"), OnlyJobText(communicators));
  if (node.segments.unusable != 0)
    text += "  " + CountText(node.segments.unusable, "unusable segment");
  return {std::move(text), kTitleStyle};
}

// The worst finding as a whole, wrapped, and the others in one line each; or what was looked at.
void AddFindings(const Judgement& judgement, int64_t now_ns, size_t columns, TopLines& lines) {
  if (judgement.findings.empty())
    return Append(Wrapped(NothingFoundText(judgement), columns), {}, lines);
  const auto style_of = [](const Finding& finding) {
    return finding.severity == Severity::kInfo ? std::string_view() : kCulpritStyle;
  };
  const Finding& worst = judgement.findings.front();
  Append(Wrapped(worst.headline, columns), style_of(worst), lines);
  std::string cost = worst.cost.empty() ? "" : "Cost: " + worst.cost;
  if (worst.since_realtime_ns != 0) {
    cost +=
        fmt::format("{} {} ({}).", cost.empty() ? "Since" : ", since",
                    ClockText(worst.since_realtime_ns), AgeText(worst.since_realtime_ns, now_ns));
  }
  if (!cost.empty()) Append(Wrapped(cost, columns), {}, lines);
  for (const auto& [name, value] : worst.evidence) {
    if (name == "on its host meanwhile")  // late_findings.cc
      Append(Wrapped(fmt::format("{}: {}.", Capital(name), value), columns), {}, lines);
  }
  if (!worst.next.empty()) Append(Wrapped("Next: " + worst.next, columns), {}, lines);
  const size_t shown = std::min(kMostFindings, judgement.findings.size());
  for (size_t i = 1; i < shown; ++i)
    lines.push_back({judgement.findings[i].headline, style_of(judgement.findings[i])});
  if (judgement.findings.size() == shown) return;
  lines.push_back(
      {CountText(judgement.findings.size() - shown, "further finding") + ": --json lists all."});
}

// Rates and times, by communicator and function, of those that ran in the last seconds. Rates are
// per second and rank: means of the ranks on this node.
TopLines CollectiveLines(const std::vector<CommunicatorOnNode>& communicators,
                         const NodeHistory& history, size_t columns) {
  TextTable table({{"COMMUNICATOR", true},
                   {"COLLECTIVE", true},
                   {"OPERATIONS"},
                   {"BYTES", false, 1},
                   {"MEAN TIME"},
                   {"BUS BANDWIDTH"}});
  const std::vector<std::string> names = CommunicatorNames(communicators);
  const RanksWindow recent_ranks = history.RecentRanks(kRateSeconds);
  for (size_t i = 0; i < communicators.size(); ++i) {
    const auto ranks = static_cast<double>(communicators[i].ranks.size());
    for (size_t id = 0; id < kFunctionCount; ++id) {
      const auto function = static_cast<Function>(id);
      const HistoryWindow recent = history.Recent(communicators[i].key, function, kRateSeconds);
      const ActivityDelta& activity = recent.activity;
      if (activity.operations == 0) continue;
      const auto rate = [&](uint64_t count) {
        return static_cast<double>(count) / recent.seconds / ranks;
      };
      table.Add({names[i], std::string(TraitsOf(function).name),
                 Scaled(rate(activity.operations), "/s"), Scaled(rate(activity.bytes), "B/s"),
                 DurationText(activity.MeanDurationSeconds()),
                 Scaled(TransferOf(communicators[i], function, recent_ranks), "B/s")});
    }
  }
  TopLines lines;
  Append(table.Lines(columns), {}, lines);
  lines.front().style = kTitleStyle;
  return lines;
}

TopLines RankLines(const std::vector<RankView>& ranks, size_t columns) {
  TopLines lines;
  Append(RankTable(ranks, RankColumns::kTop, 0).Lines(columns), {}, lines);
  lines.front().style = kTitleStyle;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].is_waiting) lines[i + 1].style = kWaitingStyle;
    if (ranks[i].is_culprit) lines[i + 1].style = kCulpritStyle;
  }
  return lines;
}

// The lines of the table of collectives, if `room` is for it and the ranks: a third, and the lines
// that ranks do not need.
size_t CollectiveRoom(size_t collectives, size_t ranks, size_t room) {
  const size_t spare = room - std::min(room, ranks + 1);
  const size_t lines = std::min(collectives, std::max(room / 3, spare));
  return lines < 2 ? 0 : lines;  // a head alone says nothing
}

// The tables below `lines`, which are `most` at the end.
void AddTables(TopLines collectives, const RankViews& found, size_t most, TopView& view,
               TopLines& lines) {
  TopLines table = RankLines(found.ranks, view.columns);
  const size_t below = found.folded == 0 ? 0 : 1, ranks = found.ranks.size();
  collectives.resize(CollectiveRoom(collectives.size(), table.size() + below,
                                    most - std::min(most, lines.size())));
  std::ranges::move(collectives, std::back_inserter(lines));
  if (!collectives.empty()) lines.push_back({});
  view.page = std::max<size_t>(most - std::min(most, lines.size() + 1 + below), 1);
  view.first = std::min(view.first, ranks - std::min(ranks, view.page));
  lines.push_back(std::move(table.front()));
  for (size_t i = view.first; i < ranks && i - view.first < view.page; ++i)
    lines.push_back(std::move(table[i + 1]));
  if (below != 0) {
    lines.push_back({found.folded == 1
                         ? "1 communicator of one rank is idle"
                         : fmt::format("{} communicators of one rank are idle", found.folded),
                     kWaitingStyle});
  }
}

std::string LastLine(size_t ranks, const TopView& view) {
  if (ranks == 0) return "no ranks  q quit";
  return fmt::format("ranks {}-{} of {}  up down PgUp PgDn  q quit", view.first + 1,
                     view.first + std::min(view.page, ranks - view.first), ranks);
}

}  // namespace

void Scroll(Key key, TopView& view) {
  if (key == Key::kUp) view.first -= std::min<size_t>(view.first, 1);
  if (key == Key::kPageUp) view.first -= std::min(view.first, view.page);
  if (key == Key::kDown) view.first += 1;
  if (key == Key::kPageDown) view.first += view.page;
}

std::string TopScreen(const collector::NodeSnapshot& node, const NodeHistory& history,
                      const Judgement& judgement, TopView& view) {
  std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  // An order that stays.
  std::ranges::stable_sort(communicators, {}, [](const CommunicatorOnNode& c) { return c.key.id; });
  PutFoundFirst(judgement, communicators);
  const RankViews found = RankViewsOf(communicators, node.taken_realtime_ns, history, judgement);
  const size_t most =
      view.rows == 0 ? std::numeric_limits<size_t>::max() : std::max<size_t>(view.rows, 2) - 1;
  TopLines lines{Head(node, communicators)};
  if (!view.judged.empty()) lines.push_back({view.judged, kWaitingStyle});
  AddFindings(judgement, node.taken_realtime_ns, view.columns, lines);
  lines.push_back({});
  AddTables(CollectiveLines(communicators, history, view.columns), found, most, view, lines);
  if (view.rows != 0) {
    lines.resize(most);
    lines.push_back({LastLine(found.ranks.size(), view)});
  }
  std::string text;
  for (const TopLine& line : lines) {
    const bool has_style = view.has_colours && !line.style.empty();
    text += fmt::format("{}{}{}\n", has_style ? line.style : "", Cut(line.text, view.columns),
                        has_style ? kPlainStyle : "");
  }
  return text;
}

}  // namespace nccl_exporter::exporter
