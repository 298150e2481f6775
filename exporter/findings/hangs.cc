// SPDX-License-Identifier: Apache-2.0
// Chooses the communicator of a job that a finding is about.
#include "exporter/findings/hangs.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "exporter/findings/hangs/hang_sentences.h"

namespace nccl_exporter::exporter {
namespace {

// The communicator that meets `condition` and in which most ranks wait, then the longest.
template <typename Condition>
const GraphCommunicator* MostWaiting(const GraphJob& job, Condition condition) {
  const GraphCommunicator* most = nullptr;
  std::tuple<size_t, int64_t> best;
  for (const GraphCommunicator& communicator : job.communicators) {
    if (!communicator.has_waited || !condition(communicator)) continue;
    size_t waiting = 0;
    int64_t since_ns = 0;
    for (const GraphRank& rank : communicator.ranks) {
      if (!rank.Lives() || !rank.waits) continue;
      ++waiting;
      since_ns =
          since_ns == 0 ? rank.since_realtime_ns : std::min(since_ns, rank.since_realtime_ns);
    }
    const std::tuple order(waiting, -since_ns);
    if (waiting == 0 || (most != nullptr && order <= best)) continue;
    most = &communicator;
    best = order;
  }
  return most;
}

bool HasDifferentCalls(const GraphCommunicator& communicator) {
  std::set<Function> functions;
  for (const GraphRank& rank : communicator.ranks) {
    if (rank.operation != nullptr && !TraitsOf(rank.operation->function).is_point_to_point)
      functions.insert(rank.operation->function);
  }
  return functions.size() > 1;
}

auto Has(bool GraphRank::*flag) {
  return [flag](const GraphCommunicator& communicator) {
    return std::ranges::any_of(communicator.ranks, flag);
  };
}

// Whether a culprit is dead, stopped or missing: it does not go on by itself.
bool HasGoneCulprit(const GraphJob& job) {
  return std::ranges::any_of(job.communicators, [](const GraphCommunicator& communicator) {
    return std::ranges::any_of(
        communicator.ranks, [](const GraphRank& rank) { return rank.is_culprit && !rank.Lives(); });
  });
}

// `lasting`: severity of a hang whose cause may go on by itself.
std::vector<Finding> FindingsOf(const GraphJob& job, int64_t taken_ns, bool is_hang,
                                Severity lasting) {
  const Severity sure = is_hang ? Severity::kCritical : Severity::kWarning;
  std::vector<Finding> findings;
  const auto add = [&](FindingKind kind, const GraphCommunicator* found, Severity severity) {
    if (found != nullptr)
      findings.push_back(HangFinding(kind, job, *found, taken_ns, is_hang, severity));
  };
  add(FindingKind::kHangCulprit, MostWaiting(job, Has(&GraphRank::is_culprit)),
      HasGoneCulprit(job) ? sure : lasting);
  add(FindingKind::kHangOtherCall, MostWaiting(job, Has(&GraphRank::is_different)), sure);
  if (!findings.empty()) return findings;
  const GraphCommunicator* found = MostWaiting(job, std::mem_fn(&GraphCommunicator::nobody_behind));
  if (found != nullptr) {
    add(HasDifferentCalls(*found) ? FindingKind::kHangOtherCall : FindingKind::kHangNobodyBehind,
        found, sure);
    return findings;
  }
  const auto is_incomplete = [](const GraphCommunicator& c) { return !c.is_complete; };
  found = MostWaiting(job,
                      [&](const GraphCommunicator& c) { return is_incomplete(c) && !c.is_queued; });
  if (found == nullptr) found = MostWaiting(job, is_incomplete);
  if (found == nullptr) found = MostWaiting(job, [](const GraphCommunicator&) { return true; });
  add(FindingKind::kHangElsewhere, found, lasting);
  return findings;
}

// Severity of a hang whose cause may go on by itself, or is not known here.
Severity SeverityOfLasting(const GraphJob& job, const HangMemory& memory, const Thresholds& times) {
  const bool is_critical =
      std::ranges::any_of(job.communicators, [&](const GraphCommunicator& communicator) {
        const int64_t waited_ns = communicator.waited_ns + times.held().count();
        return waited_ns >= (times.critical_threshold + times.quiet).count() &&
               waited_ns >= memory.Of(communicator.key).longest_wait_ns;
      });
  return is_critical ? Severity::kCritical : Severity::kWarning;
}

}  // namespace

void Hangs::Record(const collector::NodeSnapshot& node) {
  memory_.Record(WaitGraphs(node, CommunicatorsWithFinalized(node), memory_, times_,
                            times_.halted(), Suspects::kAll),
                 node.taken_realtime_ns);
}

std::vector<Finding> Hangs::Findings(const collector::NodeSnapshot& node) const {
  const int64_t taken_ns = node.taken_realtime_ns;
  std::vector<Finding> findings;
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsWithFinalized(node);
  const auto graphs = [&](std::chrono::nanoseconds threshold, Suspects suspects,
                          std::chrono::nanoseconds held = {}) {
    return WaitGraphs(node, communicators, memory_, times_, threshold, suspects, held);
  };
  const std::vector<GraphJob> hangs = graphs(times_.hang_threshold, Suspects::kAll, times_.held()),
                              halts = graphs(times_.halted(), Suspects::kHalted),
                              waits = graphs(times_.wait(), Suspects::kAll);
  // All graphs have the same jobs.
  for (size_t job = 0; job < hangs.size(); ++job) {
    std::vector<Finding> of_job =
        FindingsOf(hangs[job], taken_ns, true, SeverityOfLasting(hangs[job], memory_, times_));
    const GraphCommunicator* const halted = MostWaiting(halts[job], Has(&GraphRank::is_culprit));
    if (of_job.empty() && halted != nullptr)
      of_job.push_back(HangFinding(FindingKind::kHangCulprit, halts[job], *halted, taken_ns, true,
                                   Severity::kCritical));
    if (of_job.empty()) of_job = FindingsOf(waits[job], taken_ns, false, Severity::kWarning);
    std::ranges::move(of_job, std::back_inserter(findings));
    if (std::optional<Finding> abandoned = AbandonedFinding(hangs[job], memory_, taken_ns, times_))
      findings.push_back(*std::move(abandoned));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
