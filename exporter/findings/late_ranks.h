// SPDX-License-Identifier: Apache-2.0
// Late ranks: those that the others of a communicator wait for again and again. The conditions are
// those of the rules in deploy/prometheus (group nccl_stragglers; docs/alerts.md has the reasons),
// for the ranks of this node.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/judgement_times.h"
#include "exporter/node/node_history.h"

namespace nccl_exporter::exporter {

// Not thread-safe: its owner locks.
class LateRanks {
 public:
  explicit LateRanks(const JudgementTimes& times) : times_(times) {}

  // Judges the newest window of `history`, if the judgement before is an interval ago.
  // `monotonic_ns` as in NodeHistory::Record, which comes first.
  void Record(const collector::NodeSnapshot& node, const NodeHistory& history,
              int64_t monotonic_ns);

  // By the judgements so far.
  std::vector<Finding> Findings(const collector::NodeSnapshot& node) const;
  // Until the communicator that was met last can have late ranks; 0: all can.
  double LearningSeconds() const;

 private:
  JudgementTimes times_;
};

}  // namespace nccl_exporter::exporter
