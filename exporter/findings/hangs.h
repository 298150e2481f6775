// SPDX-License-Identifier: Apache-2.0
// Hangs: communicators on which nothing moves, and who is behind in them. The conditions are those
// of the rules in deploy/prometheus (group nccl_hangs; docs/alerts.md has the reasons), for the
// ranks of this node.
#pragma once

#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/judgement_times.h"

namespace nccl_exporter::exporter {

// Not thread-safe: its owner locks.
class Hangs {
 public:
  explicit Hangs(const JudgementTimes& times) : times_(times) {}

  // Remembers who waits in a hang, so that a rank that dies in it later is not taken for its cause.
  void Record(const collector::NodeSnapshot& node);

  // Ages come from the snapshot alone: a single one is enough.
  std::vector<Finding> Findings(const collector::NodeSnapshot& node) const;

 private:
  JudgementTimes times_;
};

}  // namespace nccl_exporter::exporter
