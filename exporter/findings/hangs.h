// SPDX-License-Identifier: Apache-2.0
// Hangs: communicators on which nothing moves, and who is behind in them. The conditions are those
// of the rules in deploy/prometheus (group nccl_hangs; docs/alerts.md has the reasons), for the
// ranks of this node.
#pragma once

#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/hang_memory.h"
#include "exporter/findings/hangs/wait_graph.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

// Not thread-safe: its owner locks.
class Hangs {
 public:
  explicit Hangs(const Thresholds& times) : times_(times) {}

  // Remembers who is here, and who waits in a hang. So a rank that vanishes in it is named, and one
  // that ends in it later is not taken for its cause. A step that is missed costs only what
  // happened between its neighbours.
  void Record(const collector::NodeSnapshot& node);

  // At most one finding per job and kind, of abandoned communicators too. Hangs are a warning from
  // Thresholds::wait() on. They are critical from `hang` on, and from `halted` on where a dead or
  // stopped rank is the cause. Where the cause may go on by itself, or is not known here, they are
  // critical from `critical` on, and not before they are longer than the waits that the communicator
  // has survived. Ages come from the snapshot alone: without a Record(), only ranks that are not here
  // cannot be named.
  std::vector<Finding> Findings(const collector::NodeSnapshot& node) const;

  const HangMemory& memory() const { return memory_; }

 private:
  // Of a hang whose cause may go on by itself, or is not known here.
  Severity SeverityOfLasting(const GraphJob& job) const;

  Thresholds times_;
  HangMemory memory_;
};

}  // namespace nccl_exporter::exporter
