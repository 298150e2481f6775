// SPDX-License-Identifier: Apache-2.0
// Chooses the communicator of a job that a finding is about.
#include "exporter/findings/hangs.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "exporter/findings/hangs/abandoned.h"
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

// Findings of a graph in which only dead and stopped ranks are suspect.
std::vector<Finding> HaltsOf(const GraphJob& job, int64_t taken_ns) {
  const GraphCommunicator* const found = MostWaiting(job, Has(&GraphRank::is_culprit));
  if (found == nullptr) return {};
  return {HangSentences(job, *found, taken_ns, true, Severity::kCritical).Culprits()};
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
  const auto words = [&](const GraphCommunicator& communicator, Severity severity) {
    return HangSentences(job, communicator, taken_ns, is_hang, severity);
  };
  std::vector<Finding> findings;
  if (const auto* found = MostWaiting(job, Has(&GraphRank::is_culprit)))
    findings.push_back(words(*found, HasGoneCulprit(job) ? sure : lasting).Culprits());
  if (const auto* found = MostWaiting(job, Has(&GraphRank::is_different)))
    findings.push_back(words(*found, sure).OtherCall());
  if (!findings.empty()) return findings;
  if (const auto* found = MostWaiting(job, [](const auto& c) { return c.nobody_behind; })) {
    return {HasDifferentCalls(*found) ? words(*found, sure).OtherCall()
                                      : words(*found, sure).NobodyBehind()};
  }
  const auto is_incomplete = [](const GraphCommunicator& c) { return !c.is_complete; };
  const GraphCommunicator* found = MostWaiting(
      job, [&](const GraphCommunicator& c) { return is_incomplete(c) && !c.is_queued; });
  if (found == nullptr) found = MostWaiting(job, is_incomplete);
  if (found == nullptr) found = MostWaiting(job, [](const GraphCommunicator&) { return true; });
  if (found != nullptr) findings.push_back(words(*found, lasting).Elsewhere());
  return findings;
}

}  // namespace

void Hangs::Record(const collector::NodeSnapshot& node) {
  memory_.Record(WaitGraph(node, memory_, times_, times_.halted()));
}

Severity Hangs::SeverityOfLasting(const GraphJob& job) const {
  const bool is_critical =
      std::ranges::any_of(job.communicators, [&](const GraphCommunicator& communicator) {
        return communicator.waited_ns >= times_.critical_threshold.count() &&
               communicator.waited_ns >= memory_.LongestWaitNs(communicator.key);
      });
  return is_critical ? Severity::kCritical : Severity::kWarning;
}

std::vector<Finding> Hangs::Findings(const collector::NodeSnapshot& node) const {
  std::vector<Finding> findings;
  const WaitGraph hangs(node, memory_, times_, times_.hang_threshold);
  const WaitGraph halts(node, memory_, times_, times_.halted(), Suspects::kHalted);
  const WaitGraph waits(node, memory_, times_, times_.wait());
  // All graphs have the same jobs.
  for (size_t job = 0; job < hangs.jobs().size(); ++job) {
    std::vector<Finding> of_job = FindingsOf(hangs.jobs()[job], node.taken_realtime_ns, true,
                                             SeverityOfLasting(hangs.jobs()[job]));
    if (of_job.empty()) of_job = HaltsOf(halts.jobs()[job], node.taken_realtime_ns);
    if (of_job.empty())
      of_job = FindingsOf(waits.jobs()[job], node.taken_realtime_ns, false, Severity::kWarning);
    std::ranges::move(of_job, std::back_inserter(findings));
    if (std::optional<Finding> abandoned =
            AbandonedOf(hangs.jobs()[job], memory_, node.taken_realtime_ns, times_))
      findings.push_back(*std::move(abandoned));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
