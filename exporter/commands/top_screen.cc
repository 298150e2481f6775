// SPDX-License-Identifier: Apache-2.0
#include "exporter/commands/top_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "exporter/exposition/utf8.h"
#include "exporter/node/local_communicators.h"
#include "exporter/node/time_text.h"

namespace nccl_exporter::exporter {
namespace {

// One long name must not push the other columns off the screen.
constexpr size_t kNameLimitBytes = 24;
constexpr size_t kTrendSteps = 30;
constexpr double kRateSeconds = 5;   // rates and means are over this time
constexpr size_t kMostFindings = 4;  // the tables must stay visible on a small screen
constexpr std::string_view kHighlight = "\x1b[1;31m", kTitle = "\x1b[1m", kPlain = "\x1b[0m";

struct Line {
  std::string text;
  std::string_view style = {};
};

// A name without control characters: its writer may have chosen any bytes.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char character : ValidUtf8(text, kNameLimitBytes)) {
    const auto byte = static_cast<uint8_t>(character);
    shown += byte < 0x20 || byte == 0x7F ? '?' : character;
  }
  return shown;
}

// In well-formed UTF-8.
bool BeginsCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

// Columns that text takes: characters, as far as a terminal without double width shows them.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, BeginsCharacter));
}

std::string Cut(const std::string& text, size_t columns) {
  if (columns == 0 || Width(text) <= columns) return text;
  size_t bytes = 0;
  for (size_t characters = 0; bytes < text.size(); ++bytes) {
    if (BeginsCharacter(text[bytes]) && ++characters > columns) break;
  }
  return text.substr(0, bytes);
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

std::string SecondsText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds >= 120) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.2f} ms", seconds * 1e3)
                         : fmt::format("{:.1f} us", seconds * 1e6);
}

std::string NameOf(const CommunicatorOnNode& communicator) {
  const std::string name = Shown(communicator.ranks.front().communicator->name);
  return name.empty() ? fmt::format("{:08x}", communicator.key.id >> 32) : name;
}

// The newest steps as bars, the highest one the longest mean time.
std::string Trend(const NodeHistory& history, const collector::CommunicatorKey& key,
                  Function function) {
  constexpr std::array<std::string_view, 8> kBars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t first = history.steps() - std::min(history.steps(), kTrendSteps);
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

template <size_t kColumns>
struct Table {
  using Row = std::array<std::string, kColumns>;
  std::array<bool, kColumns> is_text{};
  std::vector<Row> rows;  // the first is the head

  std::vector<std::string> Lines() const {
    std::array<size_t, kColumns> widths{};
    for (const Row& row : rows) {
      for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], Width(row[i]));
    }
    std::vector<std::string> lines;
    for (const Row& row : rows) {
      std::string line;
      for (size_t i = 0; i < kColumns; ++i) {
        const std::string pad(widths[i] - Width(row[i]), ' ');
        line += (i == 0 ? "" : "  ") + (is_text[i] ? row[i] + pad : pad + row[i]);
      }
      lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
    }
    return lines;
  }
};

std::vector<std::string> CollectiveLines(const std::vector<CommunicatorOnNode>& communicators,
                                         const NodeHistory& history) {
  Table<7> table{.is_text = {true, true, false, false, false, false, true},
                 .rows = {{"COMMUNICATOR", "COLLECTIVE", "OPERATIONS", "BYTES", "MEAN TIME",
                           "BUS BANDWIDTH", "TREND OF TIME"}}};
  for (const CommunicatorOnNode& communicator : communicators) {
    for (size_t i = 0; i < kFunctionCount; ++i) {
      const auto function = static_cast<Function>(i);
      const HistoryWindow recent = history.Recent(communicator.key, function, kRateSeconds);
      if (recent.activity.operations == 0) continue;
      const ActivityDelta& activity = recent.activity;
      table.rows.push_back({NameOf(communicator), std::string(TraitsOf(function).name),
                            Scaled(static_cast<double>(activity.operations) / recent.seconds, "/s"),
                            Scaled(static_cast<double>(activity.bytes) / recent.seconds, "B/s"),
                            SecondsText(activity.MeanDurationSeconds()),
                            Scaled(activity.BusBandwidth(), "B/s"),
                            Trend(history, communicator.key, function)});
    }
  }
  return table.Lines();
}

struct RankLine {
  const CommunicatorOnNode* of;
  const RankOnNode* rank;
  ArrivalWindow arrivals;
  double age_seconds = -1;  // of the oldest operation in flight
  uint64_t behind = 0;
  double last_share = -1;

  bool is_culprit = false;  // of a finding
};

std::vector<RankLine> RankLinesOf(const std::vector<CommunicatorOnNode>& communicators,
                                  const collector::NodeSnapshot& node, const NodeHistory& history) {
  std::vector<RankLine> lines;
  for (const CommunicatorOnNode& of : communicators) {
    for (const RankOnNode& rank : of.ranks) {
      const collector::CommunicatorSnapshot& here = *rank.communicator;
      RankLine line{.of = &of,
                    .rank = &rank,
                    .arrivals = history.RecentArrivals(of.key, here.rank,
                                                       Seconds(JudgementTimes().arrivals_window())),
                    .behind = of.max_started - here.started_sequence};
      if (here.completion_is_known && !here.in_flight.empty()) {
        const int64_t age_ns = node.taken_realtime_ns - here.in_flight.front().start_realtime_ns;
        line.age_seconds = static_cast<double>(std::max<int64_t>(age_ns, 0)) / 1e9;
      }
      const collector::ArrivalCounts& counts = line.arrivals.counts;
      if (counts.compared > 0)
        line.last_share = static_cast<double>(counts.last) / static_cast<double>(counts.compared);
      lines.push_back(line);
    }
  }
  return lines;
}

void Sort(std::vector<RankLine>& lines, TopSort sort) {
  std::ranges::stable_sort(lines, {}, [](const RankLine& line) {
    return std::tuple(line.of->key.id, line.rank->communicator->rank);
  });
  if (sort == TopSort::kAge)
    std::ranges::stable_sort(lines, std::greater(), &RankLine::age_seconds);
  if (sort == TopSort::kLate)
    std::ranges::stable_sort(lines, std::greater(), &RankLine::last_share);
  if (sort == TopSort::kBehind) std::ranges::stable_sort(lines, std::greater(), &RankLine::behind);
}

std::string OldestText(const collector::CommunicatorSnapshot& here) {
  if (!here.completion_is_known) return "not seen";
  if (here.in_flight.empty()) return "idle";
  const collector::InFlightOperation& oldest = here.in_flight.front();
  const std::string_view name = TraitsOf(oldest.function).name;
  return oldest.sequence == 0 ? std::string(name) : fmt::format("{} #{}", name, oldest.sequence);
}

double MeanLateness(const ArrivalWindow& arrivals) {
  return static_cast<double>(arrivals.counts.lateness_ns) / 1e9 /
         static_cast<double>(arrivals.counts.compared);
}

std::vector<Line> RankTable(const std::vector<RankLine>& ranks) {
  Table<11> table{
      .is_text = {true, false, false, false, false, false, false, true, false, false, false},
      .rows = {{"COMMUNICATOR", "RANK", "GPU", "PID", "STARTED", "BEHIND", "IN FLIGHT", "OLDEST",
                "FOR", "LAST TO ENTER", "LATE BY"}}};
  for (const RankLine& line : ranks) {
    const collector::CommunicatorSnapshot& here = *line.rank->communicator;
    table.rows.push_back(
        {NameOf(*line.of), std::to_string(here.rank),
         here.gpu_index < 0 ? "-" : std::to_string(here.gpu_index),
         fmt::format("{}{}", line.rank->process->pid, line.rank->process->is_alive ? "" : " gone"),
         std::to_string(here.started_sequence),
         line.behind == 0 ? "-" : std::to_string(line.behind),
         here.completion_is_known ? std::to_string(here.in_flight.size()) : "?", OldestText(here),
         line.age_seconds < 0 ? "-" : SecondsText(line.age_seconds),
         line.last_share < 0 ? "-" : fmt::format("{:.0f} %", line.last_share * 100),
         line.last_share < 0 ? "-" : SecondsText(MeanLateness(line.arrivals))});
  }
  std::vector<Line> lines;
  for (std::string& text : table.Lines()) lines.push_back({std::move(text)});
  lines.front().style = kTitle;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].is_culprit) lines[i + 1].style = kHighlight;
  }
  return lines;
}

bool IsCulprit(const RankLine& line, const Judgement& judgement) {
  return std::ranges::any_of(judgement.findings, [&](const Finding& finding) {
    return finding.communicator == line.of->key &&
           std::ranges::count(finding.culprits, line.rank->communicator->rank, &FoundRank::rank) !=
               0;
  });
}

std::vector<Line> Findings(const Judgement& judgement) {
  std::vector<Line> lines;
  for (const Finding& finding : judgement.findings) {
    if (lines.size() == kMostFindings) {
      lines.push_back({"and more", kHighlight});
      break;
    }
    lines.push_back({finding.headline, kHighlight});
  }
  return lines;
}

Line Head(const collector::NodeSnapshot& node, size_t communicators) {
  uint64_t losses = 0, in_flight = 0;
  for (const collector::ProcessSnapshot& process : node.processes) {
    for (const uint64_t count : process.losses) losses += count;
    for (const collector::CommunicatorSnapshot& communicator : process.communicators)
      in_flight += communicator.in_flight.size();
  }
  return {
      fmt::format(
          "{}Z  {} processes  {} communicators  {} in flight  {} given up  {} unusable segments",
          TimeText(node.taken_realtime_ns).substr(0, 19), node.segments.live, communicators,
          in_flight, losses, node.segments.unusable),
      kTitle};
}

std::string Joined(const std::vector<Line>& lines, const TopView& view) {
  std::string text;
  for (const Line& line : lines) {
    const bool has_style = view.has_colours && !line.style.empty();
    if (has_style) text += line.style;
    text += Cut(line.text, view.columns);
    if (has_style) text += kPlain;
    text += '\n';
  }
  return text;
}

}  // namespace

std::string TopScreen(const collector::NodeSnapshot& node, const NodeJudge& judge,
                      const TopView& view) {
  const NodeHistory& history = judge.history();
  const Judgement judgement = judge.Judge(node);
  std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  std::ranges::stable_sort(communicators, {}, [](const CommunicatorOnNode& c) { return c.key.id; });
  std::vector<RankLine> ranks = RankLinesOf(communicators, node, history);
  for (RankLine& line : ranks) line.is_culprit = IsCulprit(line, judgement);
  Sort(ranks, view.sort);
  std::vector<Line> lines{Head(node, communicators.size())};
  std::ranges::move(Findings(judgement), std::back_inserter(lines));
  lines.push_back({});
  const std::vector<std::string> collectives = CollectiveLines(communicators, history);
  // Half of the screen is for the ranks.
  const size_t room = view.rows == 0
                          ? collectives.size()
                          : std::max<size_t>(view.rows / 2, lines.size() + 2) - lines.size();
  for (size_t i = 0; i < std::min(room, collectives.size()); ++i) {
    lines.push_back({collectives[i], i == 0 ? kTitle : std::string_view()});
  }
  lines.push_back({});
  std::vector<Line> table = RankTable(ranks);
  const size_t scrolled = std::min(view.first_rank, table.size() - 1);
  table.erase(table.begin() + 1, table.begin() + 1 + static_cast<std::ptrdiff_t>(scrolled));
  std::ranges::move(table, std::back_inserter(lines));
  if (view.rows == 0) return Joined(lines, view);
  lines.resize(std::max<size_t>(view.rows, 2) - 1);
  lines.push_back({fmt::format("q quit   s sort (by {})   up/down scroll   p pause{}",
                               RowIn(kTopSorts, view.sort).name, view.is_paused ? "d" : "")});
  return Joined(lines, view);
}

}  // namespace nccl_exporter::exporter
