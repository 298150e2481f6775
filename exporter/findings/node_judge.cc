// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_judge.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "exporter/findings/node_troubles.h"
#include "exporter/node/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

bool IsHang(const Finding& finding) {
  return finding.kind == FindingKind::kHangCulprit || finding.kind == FindingKind::kHangOtherCall ||
         finding.kind == FindingKind::kHangNobodyBehind ||
         finding.kind == FindingKind::kHangElsewhere;
}

// Whether a process is a culprit of both.
bool NameTheSame(const Finding& one, const Finding& other) {
  return std::ranges::any_of(one.culprits, [&](const FoundRank& culprit) {
    return culprit.pid != 0 &&
           std::ranges::count(other.culprits, culprit.pid, &FoundRank::pid) != 0;
  });
}

// Orders findings as Judgement has them. Returns how many were left out.
uint64_t TakeTurns(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, {}, [](const Finding& finding) {
    return std::tuple(-static_cast<int>(finding.severity), finding.since_realtime_ns);
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

// Of the rank that was compared most often in each communicator.
uint64_t ComparedOperations(const std::vector<CommunicatorOnNode>& communicators,
                            const NodeHistory& history, double seconds) {
  uint64_t sum = 0;
  for (const CommunicatorOnNode& communicator : communicators) {
    uint64_t most = 0;
    for (const RankOnNode& rank : communicator.ranks) {
      const ArrivalWindow recent =
          history.RecentArrivals(communicator.key, rank.communicator->rank, seconds);
      most = std::max(most, recent.counts.compared);
    }
    sum += most;
  }
  return sum;
}

}  // namespace

void NodeJudge::Record(const collector::NodeSnapshot& node, int64_t monotonic_ns) {
  history_.Record(node, monotonic_ns);
  hangs_.Record(node);
  late_ranks_.Record(node, history_, monotonic_ns);
  bandwidth_past_.Record(history_, node.taken_realtime_ns, monotonic_ns);
}

Judgement NodeJudge::Judge(const collector::NodeSnapshot& node) const {
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  Judgement judgement{.findings = hangs_.Findings(node),
                      .communicators = communicators.size(),
                      .learning_seconds = late_ranks_.LearningSeconds()};
  for (size_t step = 0; step < history_.steps(); ++step)
    judgement.seconds += history_.Seconds(step);
  judgement.compared_operations = ComparedOperations(communicators, history_, judgement.seconds);

  const auto add = [&](std::vector<Finding> more) {
    std::ranges::move(more, std::back_inserter(judgement.findings));
  };
  // A communicator that hangs has no late ranks: its window is a part of the hang.
  std::vector<Finding> late = late_ranks_.Findings(node);
  std::erase_if(late, [&](const Finding& finding) {
    return std::ranges::any_of(judgement.findings, [&](const Finding& other) {
      return IsHang(other) && other.communicator == finding.communicator;
    });
  });
  add(std::move(late));
  // The killed process that a job hangs for is named by the hang.
  std::vector<Finding> killed = KilledProcesses(node);
  std::erase_if(killed, [&](const Finding& finding) {
    return std::ranges::any_of(judgement.findings, [&](const Finding& other) {
      return IsHang(other) && other.uid == finding.uid && NameTheSame(other, finding);
    });
  });
  add(std::move(killed));
  add(bandwidth_past_.Findings(node));
  add(UnusableSegments(node));
  add(UnfollowedOperations(node, history_, times_));
  judgement.left_out = TakeTurns(judgement.findings);
  return judgement;
}

}  // namespace nccl_exporter::exporter
