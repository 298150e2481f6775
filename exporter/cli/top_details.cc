// SPDX-License-Identifier: Apache-2.0
// The screens of `nccl-exporter top` after Enter and after `?`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "exporter/cli/top_line.h"
#include "exporter/findings/words.h"
#include "exporter/series/labels/series_labels.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostOperations = 8;  // in flight: the oldest ones say it

// Lines of a name and a value; those without a value are left out.
class Facts {
 public:
  explicit Facts(size_t columns) : columns_(columns) {}

  void Add(std::string_view name, const std::string& value) {
    if (value.empty()) return;
    for (std::string& line : Wrapped(fmt::format("{:<15}{}", name, value), columns_))
      lines.push_back({std::move(line)});
  }

  std::vector<TopLine> lines;

 private:
  const size_t columns_;
};

std::string AgoText(int64_t then_ns, int64_t now_ns) {
  if (then_ns == 0) return "never";
  return fmt::format("{} ago, at {}", AgeText(then_ns, now_ns), ClockText(then_ns));
}

void AddProcess(const collector::ProcessSnapshot& process, Facts& facts) {
  facts.Add("process", fmt::format("{} of user {}, {}", process.pid, process.uid,
                                   Printable(process.executable)));
  facts.Add("host", Printable(process.NodeName()));
  facts.Add("pod", Printable(process.Identity("POD_NAME")));
  facts.Add("plugin", Printable(process.plugin_version));
}

void AddProgress(const RankView& line, int64_t now_ns, Facts& facts) {
  const collector::CommunicatorSnapshot& here = *line.rank->communicator;
  facts.Add("started", CountText(here.started_sequence, "collective") +
                           (line.behind == 0 ? "" : fmt::format(", {} behind", line.behind)));
  if (!here.completion_is_known) return facts.Add("completed", "not seen");
  facts.Add("completed", CountText(here.completed_sequence, "collective"));
  facts.Add("last progress", AgoText(here.last_progress_realtime_ns, now_ns));
  for (size_t i = 0; i < std::min(kMostOperations, here.in_flight.size()); ++i) {
    const collector::InFlightOperation& operation = here.in_flight[i];
    const FunctionTraits& traits = TraitsOf(operation.function);
    std::string name(traits.name);
    if (!traits.is_point_to_point) name += fmt::format(" #{}", operation.sequence);
    if (operation.peer >= 0) name += fmt::format(", peer {}", operation.peer);
    facts.Add(i == 0 ? "in flight" : "",
              fmt::format("{}, {} bytes, called {}", name, operation.bytes,
                          AgoText(operation.start_realtime_ns, now_ns)));
  }
}

// "own GPU 12 %, receiver 3 %, network 85 % of 96 operations in 120 s".
std::string NetworkText(NetworkDirection direction, const NetworkWindow& recent) {
  constexpr std::array<std::string_view, kNetworkStateCount> kSendNames{"own GPU", "receiver",
                                                                        "network", ""};
  constexpr std::array<std::string_view, kNetworkStateCount> kRecvNames{
      "own GPU", "", "sender or network", "flush"};
  const auto& names = direction == NetworkDirection::kSend ? kSendNames : kRecvNames;
  const collector::NetworkDirectionCounts& counts =
      recent.counts.directions[static_cast<size_t>(direction)];
  const double sum_ns = std::accumulate(counts.wait_ns.begin(), counts.wait_ns.end(), 0.0);
  if (sum_ns == 0) return "";
  std::string text;
  for (size_t i = 0; i < kNetworkStateCount; ++i) {
    const auto wait_ns = counts.WaitNs(direction, static_cast<NetworkState>(i));
    if (!wait_ns) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", names[i],
                        100 * static_cast<double>(*wait_ns) / sum_ns);
  }
  return fmt::format("{} of {} in {:.0f} s", text, CountText(counts.operations, "timed operation"),
                     recent.seconds);
}

bool Names(const std::vector<FoundRank>& ranks, const RankView& line) {
  return std::ranges::any_of(ranks, [&](const FoundRank& rank) {
    return rank.rank == line.rank->communicator->rank &&
           (rank.pid == 0 || rank.pid == line.rank->process->pid);
  });
}

}  // namespace

std::vector<TopLine> DetailLines(const RankView& line, const collector::NodeSnapshot& node,
                                 const Judgement& judgement, size_t columns) {
  const collector::CommunicatorSnapshot& here = *line.rank->communicator;
  const collector::ProcessSnapshot& process = *line.rank->process;
  Facts facts(columns);
  facts.Add("communicator", fmt::format("{}, id {:016x}, {} of {} ranks here", line.communicator,
                                        here.id, line.of->ranks.size(), here.ranks));
  facts.lines.front().style = kTitleStyle;
  facts.Add("rank", std::to_string(here.rank));
  facts.Add("global rank", GlobalRank(here));
  facts.Add("job", JobText(process));
  facts.Add("state", line.state);
  facts.Add("GPU", here.gpu_index < 0
                       ? ""
                       : fmt::format("{} {}", here.gpu_index, Printable(here.gpu_uuid)));
  AddProcess(process, facts);
  AddProgress(line, node.taken_realtime_ns, facts);
  if (line.last_share >= 0) {
    facts.Add("last to enter",
              fmt::format("{} of {}, by {} on average", line.LastText(),
                          CountText(line.arrivals.counts.compared, "operation"), line.LateText()));
  }
  facts.Add("sends wait", NetworkText(NetworkDirection::kSend, line.network));
  facts.Add("receives wait", NetworkText(NetworkDirection::kRecv, line.network));
  for (const Finding& finding : judgement.findings) {
    if (finding.communicator && *finding.communicator != line.of->key) continue;
    if (!Names(finding.culprits, line) && !Names(finding.waiting, line)) continue;
    facts.Add("finding", finding.headline);
    facts.Add("cost", finding.cost);
    for (const auto& [name, value] : finding.evidence) facts.Add("", name + ": " + value);
    facts.Add("next", finding.next);
    facts.Add("runbook", finding.runbook);
  }
  return facts.lines;
}

std::vector<TopLine> HelpLines() {
  return {{"Keys", kTitleStyle},
          {"/ words      only ranks that have all words: of a communicator's name, a state,"},
          {"             a number, rank=3, gpu=3, pid=7; Enter keeps the filter, Esc ends it"},
          {"Enter        details of the marked rank"},
          {"up down j k  move the mark; PgUp and PgDn by a screen"},
          {"s            order: rank, age, late, behind; culprits always come first"},
          {"p            pause"},
          {"q            quit"},
          {},
          {"Columns", kTitleStyle},
          {"OPERATIONS     rate per rank, over 5 s; the mean time includes waiting"},
          {"BUS BANDWIDTH  of the fastest rank, which waits for nobody"},
          {"GLOBAL         the rank in the job, where it is another number than RANK"},
          {"BEHIND         collectives that another rank of this node started and this not"},
          {"OLDEST, FOR    the oldest operation in flight, and its age"},
          {"LAST TO ENTER  share of the operations of 2 minutes that this rank entered last"},
          {"LATE BY        behind the first rank to enter, on average"},
          {},
          {"A rank is called late only by the findings on top. They compare several minutes."},
          {"Narrow screens leave out STARTED, IN FLIGHT, PID, OLDEST, BEHIND, STATE, GPU."}};
}

}  // namespace nccl_exporter::exporter
