// SPDX-License-Identifier: Apache-2.0
// Hangs, communicators on which nothing moves, and the ranks that are behind in them: the rules of
// group nccl_hangs (docs/alerts.md) for the ranks of this node.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/hang_memory.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

// Not thread-safe: its owner locks.
class Hangs {
 public:
  explicit Hangs(const Thresholds& times) : times_(times) {}

  // Remembers the ranks that are here and those that wait in a hang. So a rank that vanishes in a
  // hang is named, and a waiting rank that ends later is not taken for the cause.
  void Record(const collector::NodeSnapshot& node);

  // At most one finding per job and kind. A hang is a warning from Thresholds::wait() on. It is
  // critical from hang_threshold and Thresholds::held() on, as the alert fires, and from halted() on
  // if a dead or stopped rank is the cause. If the cause may go on by itself, or is not known here,
  // it is critical from critical_threshold on, but not before it is longer than the waits that the
  // communicator has survived. Without a Record(), ranks that are gone cannot be named.
  std::vector<Finding> Findings(const collector::NodeSnapshot& node) const;

  // Ranks that are gone and found no place in the memory, summed since the start.
  uint64_t not_remembered() const { return memory_.forgotten(); }

 private:
  Thresholds times_;
  HangMemory memory_;
};

}  // namespace nccl_exporter::exporter
