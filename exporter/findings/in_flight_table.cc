// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/in_flight_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/findings/findings_text.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/text/time_text.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

// Limits that keep a line within 120 columns.
constexpr size_t kNameLimitBytes = 36;
constexpr size_t kJobLimitBytes = 16;
constexpr size_t kMostRanksNamed = 8;  // in a list

template <typename... Arguments>
void Line(std::string& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
  out += '\n';
}

std::string RanksText(const std::vector<uint64_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostRanksNamed); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMostRanksNamed)
    text += fmt::format(" and {} more", ranks.size() - kMostRanksNamed);
  return text;
}

using Row = std::array<std::string, 13>;
constexpr size_t kGlobal = 1, kOperation = 9;  // columns
const Row kHead{"rank",      "global",    "gpu",       "pid", "process",   "started", "behind",
                "completed", "in flight", "oldest is", "for", "since UTC", "size"};

bool IsStopped(const collector::ProcessSnapshot& process) {
  return process.is_alive && process.is_stopped.value_or(false);
}

std::string StateOf(const collector::ProcessSnapshot& process) {
  if (!process.is_alive) return "killed";
  return IsStopped(process) ? "stopped" : "alive";
}

// "23:41:06".
std::string SinceText(int64_t then_ns) {
  const std::string text = ClockText(then_ns);
  return then_ns == 0 ? "-" : text.substr(0, text.find(' '));
}

Row RowOf(const RankOnNode& rank, const CommunicatorOnNode& all, int64_t now_ns) {
  const collector::CommunicatorSnapshot& communicator = *rank.communicator;
  const uint64_t behind = all.max_started - communicator.started_sequence;
  Row row{std::to_string(communicator.rank),
          GlobalRankOf(rank),
          communicator.gpu_index < 0 ? "-" : std::to_string(communicator.gpu_index),
          std::to_string(rank.process->pid),
          StateOf(*rank.process),
          std::to_string(communicator.started_sequence),
          behind == 0 ? "-" : std::to_string(behind),
          "?",
          "?",
          "not seen",
          AgeText(communicator.last_progress_realtime_ns, now_ns),
          SinceText(communicator.last_progress_realtime_ns),
          "-"};
  if (!communicator.completion_is_known) return row;
  row[7] = std::to_string(communicator.completed_sequence);
  row[8] = std::to_string(communicator.in_flight.size());
  row[kOperation] = "idle";
  if (communicator.in_flight.empty()) return row;
  const collector::InFlightOperation& oldest = communicator.in_flight.front();
  row[kOperation] = OperationText(oldest);
  row[10] = AgeText(oldest.start_realtime_ns, now_ns);
  row[11] = SinceText(oldest.start_realtime_ns);
  row[12] = BytesText(oldest.bytes);
  return row;
}

// Whether global ranks are shown: where they are other numbers than the ranks.
bool HasOtherNumbers(const std::vector<RankOnNode>& ranks) {
  return HaveGlobalRanks(ranks) && std::ranges::any_of(ranks, [](const RankOnNode& rank) {
           return GlobalRankOf(rank) != std::to_string(rank.communicator->rank);
         });
}

void AddTable(const std::vector<Row>& rows, bool has_global, std::string& out) {
  std::array<size_t, kHead.size()> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == kGlobal && !has_global) continue;
      line += i == kOperation ? fmt::format("  {:<{}}", row[i], widths[i])
                              : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
}

void AddBehind(const CommunicatorOnNode& communicator, std::string& out) {
  std::vector<RankOnNode> behind;
  uint64_t least = communicator.max_started;
  for (const RankOnNode& rank : communicator.ranks)
    least = std::min(least, rank.communicator->started_sequence);
  if (least == communicator.max_started) return;
  for (const RankOnNode& rank : communicator.ranks) {
    if (rank.communicator->started_sequence == least) behind.push_back(rank);
  }
  Line(out, "  furthest behind here, by {}: {}", communicator.max_started - least,
       RanksText(behind, HasOtherNumbers(communicator.ranks), kMostRanksNamed));
}

// Names the missing ranks on a node that has all ranks of the communicator, else counts them.
void AddMissing(const CommunicatorOnNode& communicator, std::string& out) {
  const collector::CommunicatorSnapshot& any = *communicator.ranks.front().communicator;
  std::set<uint64_t> here;
  std::vector<RankOnNode> killed, stopped;
  for (const RankOnNode& rank : communicator.ranks) {
    here.insert(rank.communicator->rank);
    if (!rank.process->is_alive) killed.push_back(rank);
    if (IsStopped(*rank.process)) stopped.push_back(rank);
  }
  const bool are_global = HasOtherNumbers(communicator.ranks);
  if (!killed.empty())
    Line(out, "  process has ended without finalizing: {}",
         RanksText(killed, are_global, kMostRanksNamed));
  if (!stopped.empty())
    Line(out, "  process is stopped: {}", RanksText(stopped, are_global, kMostRanksNamed));
  if (any.ranks == 0) return Line(out, "  this NCCL does not report the number of ranks");
  if (here.size() >= any.ranks) return;
  const uint64_t missing = any.ranks - here.size();
  if (any.nodes != 1)
    return Line(out, "  not seen here: {} of {} ranks, on other nodes or without the plugin",
                missing, any.ranks);
  std::vector<uint64_t> ranks;
  for (uint64_t rank = 0; rank < any.ranks && ranks.size() <= kMostRanksNamed; ++rank) {
    if (!here.contains(rank)) ranks.push_back(rank);
  }
  const std::string more = missing > ranks.size() ? fmt::format(" ({} in all)", missing) : "";
  Line(out, "  missing on this node, which has all ranks: rank {}{}", RanksText(ranks), more);
}

void AddCommunicator(const CommunicatorOnNode& communicator, int64_t now_ns, std::string& out) {
  const RankOnNode& any = communicator.ranks.front();
  std::string name;
  AppendQuoted(ValidUtf8(any.communicator->name, kNameLimitBytes), name);
  const std::string job = any.process->JobName();
  std::string job_text;
  if (!job.empty()) AppendQuoted(ValidUtf8(job, kJobLimitBytes), job_text);
  const uint64_t ranks = any.communicator->ranks;
  Line(out, "communicator {:016x} {}{}{}: {} of {} ranks here", any.communicator->id, name,
       job.empty() ? "" : " of job ", job_text, communicator.ranks.size(),
       ranks == 0 ? "an unknown number of" : std::to_string(ranks));
  std::vector<Row> rows{kHead};
  for (const RankOnNode& rank : communicator.ranks)
    rows.push_back(RowOf(rank, communicator, now_ns));
  AddTable(rows, HasOtherNumbers(communicator.ranks), out);
  AddBehind(communicator, out);
  AddMissing(communicator, out);
}

// Communicators of findings first, by the place of the first finding about each.
std::vector<CommunicatorOnNode> InOrder(const collector::NodeSnapshot& node,
                                        const Judgement& judgement) {
  std::map<collector::CommunicatorKey, size_t> places;
  for (const Finding& finding : judgement.findings) {
    if (finding.communicator) places.try_emplace(*finding.communicator, places.size());
  }
  std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  std::vector<std::pair<size_t, size_t>> order;  // of the first finding, among the communicators
  for (size_t i = 0; i < communicators.size(); ++i) {
    const auto place = places.find(communicators[i].key);
    order.emplace_back(place == places.end() ? places.size() : place->second, i);
  }
  std::ranges::sort(order);
  std::vector<CommunicatorOnNode> in_order;
  for (const auto& [place, i] : order) in_order.push_back(std::move(communicators[i]));
  return in_order;
}

}  // namespace

std::string InFlightText(const collector::NodeSnapshot& node, const Judgement& judgement) {
  const std::vector<CommunicatorOnNode> communicators = InOrder(node, judgement);
  const auto busy = std::ranges::count_if(
      communicators, [](const auto& c) { return c.oldest_start_ns != kNothingInFlight; });
  std::string out;
  Line(out, "{}: {}, {} with operations in flight", TimeText(node.taken_realtime_ns),
       CountText(communicators.size(), "communicator"), busy);
  out += FindingsText(judgement);
  if (node.segments.unusable != 0)
    Line(out, "{} files cannot be read as segments", node.segments.unusable);
  for (const CommunicatorOnNode& communicator : communicators) {
    out += '\n';
    AddCommunicator(communicator, node.taken_realtime_ns, out);
  }
  return out;
}

}  // namespace nccl_exporter::exporter
