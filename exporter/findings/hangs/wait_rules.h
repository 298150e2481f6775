// SPDX-License-Identifier: Apache-2.0
// ApplyWaitRules, the rules of the group nccl_hangs over one job of a node. A pure function.
#pragma once

#include <chrono>
#include <cstdint>

#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

// Finds the waits, culprits and other states of the ranks and communicators of `job`.
// `taken_realtime_ns` is the moment of their snapshot, and `threshold` the age of a hang. The time
// grows with ranks plus operations in flight, whatever a process wrote into them.
void ApplyWaitRules(GraphJob& job, int64_t taken_realtime_ns, const Thresholds& times,
                    std::chrono::nanoseconds threshold, Suspects suspects);

}  // namespace nccl_exporter::exporter
