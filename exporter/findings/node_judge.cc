// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_judge.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

#include "exporter/findings/node_troubles.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

using SiteLabels = decltype(Finding::labels);

// A thread that wakes up late once has less than a step until the next time.
constexpr double kLeastOfStep = 0.9;

// Removes what `hangs` explain: late ranks of a communicator that hangs, whose window is a part of
// the hang; killed processes that a job waits for, which the hang names; and unmeasured ranks.
void RemoveExplained(const std::vector<Finding>& hangs, std::vector<Finding>& findings) {
  std::set<collector::CommunicatorKey> communicators;
  // Job, pid and pod: two containers may have the same pid.
  std::set<std::tuple<JobKey, uint64_t, std::string>> culprits;
  for (const Finding& hang : hangs) {
    if (!IsHang(hang.kind)) continue;
    if (hang.communicator) communicators.insert(*hang.communicator);
    for (const FoundRank& culprit : hang.culprits) {
      if (culprit.pid != 0) culprits.insert({JobKeyOf(hang), culprit.pid, culprit.pod});
    }
  }
  std::erase_if(findings, [&](const Finding& finding) {
    if (finding.kind == FindingKind::kLateRank || finding.kind == FindingKind::kRanksUnmeasured)
      return communicators.contains(*finding.communicator);
    return finding.kind == FindingKind::kProcessKilled &&
           std::ranges::any_of(finding.culprits, [&](const FoundRank& culprit) {
             return culprits.contains({JobKeyOf(finding), culprit.pid, culprit.pod});
           });
  });
}

// Orders findings as Judgement has them: of equal severity, those that name a culprit before those
// whose culprit is elsewhere. Returns how many were left out: of each user the least severe.
uint64_t TakeTurns(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, {}, [](const Finding& finding) {
    return std::tuple(-static_cast<int>(finding.severity), finding.culprits.empty(),
                      finding.since_realtime_ns);
  });
  std::map<uint64_t, size_t> of_user;
  std::map<std::pair<Severity, uint64_t>, size_t> of_severity;
  std::vector<std::tuple<int, size_t, size_t>> order;  // severity, turn, place
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    if (of_user[finding.uid]++ >= kMostFindingsPerUser) continue;
    order.emplace_back(-static_cast<int>(finding.severity),
                       of_severity[{finding.severity, finding.uid}]++, i);
  }
  std::ranges::sort(order);
  std::vector<Finding> ordered;
  for (const auto& [severity, turn, place] : order) ordered.push_back(std::move(findings[place]));
  const uint64_t left_out = findings.size() - ordered.size();
  findings = std::move(ordered);
  return left_out;
}

// Those of a process of the finding's job.
SiteLabels LabelsOf(const Finding& finding, const collector::NodeSnapshot& node) {
  const auto process = std::ranges::find_if(
      node.processes,
      [job = JobKeyOf(finding)](const auto& candidate) { return JobKeyOf(candidate) == job; });
  return process == node.processes.end() ? SiteLabels() : process->site_labels;
}

}  // namespace

void NodeJudge::Record(const Book& book, int64_t monotonic_ns) {
  const collector::NodeSnapshot& node = *book.node;
  if (recorded_ns_ && static_cast<double>(monotonic_ns - *recorded_ns_) <
                          kLeastOfStep * static_cast<double>(times_.step.count()))
    return;
  recorded_ns_ = monotonic_ns;
  // The others read the step that the history takes here.
  history_.Record(book, monotonic_ns);
  hangs_.Record(node);
  late_ranks_.Record(node, history_, monotonic_ns);
  lost_operations_.Record(node, history_);
  std::map<collector::FileKey, uint32_t> ended_steps;
  for (const collector::ProcessSnapshot& process : node.processes) {
    if (!process.is_alive)
      ended_steps[process.file] = std::min(ended_steps_[process.file] + 1, kHaltedSnapshots);
  }
  ended_steps_ = std::move(ended_steps);
}

// Empty without a Record().
std::set<collector::FileKey> NodeJudge::JustEnded(const collector::NodeSnapshot& node) const {
  std::set<collector::FileKey> just_ended;
  if (!recorded_ns_) return just_ended;
  for (const collector::ProcessSnapshot& process : node.processes) {
    const auto steps = ended_steps_.find(process.file);
    if (!process.is_alive && (steps == ended_steps_.end() || steps->second < kHaltedSnapshots))
      just_ended.insert(process.file);
  }
  return just_ended;
}

Judgement NodeJudge::Judge(const collector::NodeSnapshot& node) const {
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  Judgement judgement{
      .findings = hangs_.Findings(node),
      .communicators = communicators.size(),
      .across_nodes = static_cast<uint64_t>(std::ranges::count_if(communicators, SpansNodes)),
      .compared_operations = history_.ComparedOperations(),
      .learning_seconds = late_ranks_.LearningSeconds(),
      .not_remembered = history_.left_out() + hangs_.not_remembered()};
  for (size_t step = 0; step < history_.steps(); ++step)
    judgement.seconds += history_.Seconds(step);

  std::vector<Finding> others = late_ranks_.Findings(node);
  for (std::vector<Finding>& more :
       std::array{KilledProcesses(node, JustEnded(node)), UnusableSegments(node),
                  lost_operations_.Findings(), NotJudged(communicators),
                  UnmeasuredRanks(node, times_.wait()), SocketFallbacks(communicators)})
    std::ranges::move(more, std::back_inserter(others));
  RemoveExplained(judgement.findings, others);
  std::ranges::move(others, std::back_inserter(judgement.findings));
  judgement.left_out = TakeTurns(judgement.findings);
  for (Finding& finding : judgement.findings) {
    finding.id = ids_.IdOf(finding);
    finding.labels = LabelsOf(finding, node);
  }
  return judgement;
}

}  // namespace nccl_exporter::exporter
