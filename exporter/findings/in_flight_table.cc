// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/in_flight_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "exporter/findings/rank_view.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/text/text_line.h"
#include "exporter/text/time_text.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

// Limits that keep a line within 120 columns.
constexpr size_t kNameLimitBytes = 36;
constexpr size_t kNameAndJobLimitBytes = 54;
constexpr size_t kLeastOfJobBytes = 16;
constexpr size_t kTableColumns = 118;

// Findings that are listed; the page and --json have all of them.
constexpr size_t kMostFindings = 8;

void AddFinding(const Finding& finding, std::string& out) {
  Line(out, "{}: {}", Capital(RowIn(kSeverities, finding.severity).name), finding.headline);
  if (!finding.cost.empty()) Line(out, "  cost: {}", finding.cost);
  for (const auto& [name, value] : finding.evidence) Line(out, "  {}: {}", name, value);
  if (!finding.next.empty()) Line(out, "  next: {}", finding.next);
  for (const auto& [what, command] : finding.collect)
    Line(out, "  collect: {}  # {}", command, what);
}

// Names the ranks that are behind or halted. Names the missing ranks on a node that has all ranks
// of the communicator, else counts them.
void AddTroubles(const CommunicatorOnNode& communicator, std::string& out) {
  const auto started = [](const RankOnNode& rank) { return rank.communicator->started_sequence; };
  const uint64_t least = started(std::ranges::min(communicator.ranks, {}, started));
  std::vector<RankOnNode> behind, killed, stopped;
  for (const RankOnNode& rank : communicator.ranks) {
    if (started(rank) == least && least < communicator.max_started) behind.push_back(rank);
    if (rank.process->IsHalted()) (rank.process->is_alive ? stopped : killed).push_back(rank);
  }
  const auto name = [&](const std::string& what, const std::vector<RankOnNode>& ranks) {
    if (!ranks.empty())
      Line(out, "  {}: {}", what, RanksText(ranks, HaveOtherNumbers(communicator.ranks)));
  };
  name(fmt::format("furthest behind here, by {}", communicator.max_started - least), behind);
  name("process has ended without finalizing", killed);
  name("process is stopped", stopped);
  const collector::CommunicatorSnapshot& any = *communicator.ranks.front().communicator;
  if (any.ranks == 0) return Line(out, "  this NCCL does not report the number of ranks");
  const MissingRanks missing = MissingOf(communicator.ranks);
  if (missing.count == 0) return;
  if (any.nodes != 1)
    return Line(out, "  not seen here: {} of {} ranks, on other nodes{} or without the plugin",
                missing.count, any.ranks, communicator.may_lack_room ? ", without room" : "");
  if (communicator.may_lack_room)
    return Line(out, "  not seen here, {}: {}", kWhereNoRoom, MissingText(missing));
  Line(out, "  missing on this node, which has all ranks: {}", MissingText(missing));
}

void AddCommunicator(const CommunicatorOnNode& communicator, int64_t now_ns,
                     const Judgement& judgement, std::string& out) {
  const RankOnNode& any = communicator.ranks.front();
  std::string name;
  AppendQuoted(ValidUtf8(any.communicator->name, kNameLimitBytes), name);
  const std::string job = any.process->JobName();
  std::string job_text;
  const size_t job_limit_bytes =
      kNameAndJobLimitBytes - std::min(name.size(), kNameAndJobLimitBytes - kLeastOfJobBytes);
  if (!job.empty()) AppendQuoted(ValidUtf8(job, job_limit_bytes), job_text);
  const uint64_t ranks = any.communicator->ranks;
  Line(out, "communicator {:016x} {}{}{}: {} of {} ranks here", any.communicator->id, name,
       job.empty() ? "" : " of job ", job_text, communicator.ranks.size(),
       ranks == 0 ? "an unknown number of" : std::to_string(ranks));
  std::vector<RankView> views;
  for (const RankOnNode& rank : communicator.ranks)
    views.push_back(RankViewOf(communicator, rank, now_ns, {}, judgement));
  const TextTable table = RankTable(views, RankColumns::kInFlight, now_ns);
  for (const std::string& line : table.Lines(kTableColumns)) Line(out, "  {}", line);
  AddTroubles(communicator, out);
}

}  // namespace

std::string FindingsText(const Judgement& judgement) {
  if (judgement.findings.empty()) return NothingFoundText(judgement) + '\n';
  std::string out;
  for (size_t i = 0; i < std::min(kMostFindings, judgement.findings.size()); ++i)
    AddFinding(judgement.findings[i], out);
  if (judgement.findings.size() > kMostFindings)
    Line(out, "{} more findings", judgement.findings.size() - kMostFindings);
  return out;
}

std::string NothingFoundText(const Judgement& judgement) {
  if (judgement.communicators == 0) return "No communicator is in use.";
  const std::string looked = CountText(judgement.communicators, "communicator");
  if (judgement.seconds == 0)
    return fmt::format("No hang found on {}; late ranks need the daemon's history.", looked);
  std::string text =
      fmt::format("Nothing found in the last {}: {}, {} compared.", DurationText(judgement.seconds),
                  looked, CountText(judgement.compared_operations, "operation"));
  if (judgement.learning_seconds > 0)
    text +=
        fmt::format(" Late ranks can be found in {}.", DurationText(judgement.learning_seconds));
  if (judgement.across_nodes == 0)
    return text + " Not judged here: bandwidth. The alerts do: see nccl-exporter report.";
  return text + fmt::format(
                    " Not judged here: bandwidth, and the network of {} across nodes. The "
                    "alerts do: see nccl-exporter report.",
                    CountText(judgement.across_nodes, "communicator"));
}

std::string InFlightText(const collector::NodeSnapshot& node, const Judgement& judgement) {
  std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  PutFoundFirst(judgement, communicators);
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
    AddCommunicator(communicator, node.taken_realtime_ns, judgement, out);
  }
  return out;
}

}  // namespace nccl_exporter::exporter
