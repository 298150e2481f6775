// SPDX-License-Identifier: Apache-2.0
// ApplyWaitRules, the rules of the group nccl_hangs over one job of a node. A pure function.
#pragma once

#include <chrono>
#include <cstdint>

#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

// Sets what WaitGraph says of the ranks and communicators of `job`, which have none of it yet.
void ApplyWaitRules(GraphJob& job, int64_t taken_realtime_ns, std::chrono::nanoseconds threshold);

}  // namespace nccl_exporter::exporter
