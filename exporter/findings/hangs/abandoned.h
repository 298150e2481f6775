// SPDX-License-Identifier: Apache-2.0
// AbandonedOf, the finding about communicators that a job has left with operations in flight. A
// pure function, for any thread.
//
// Example: ncclCommRevoke ends the thread that reports to the plugin, so the operations that it
// aborts stay in flight until ncclCommDestroy (2.30.7 src/init.cc ncclCommRevoke).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/hang_memory.h"
#include "exporter/findings/hangs/wait_graph.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

// About the communicator that has stood still longest, and for at least the threshold of a hang;
// nothing if there is none. Ranks that go on after a pause do so in one communicator before the
// other. So one that `memory` follows must have been abandoned for a quarter of the threshold.
std::optional<Finding> AbandonedOf(const GraphJob& job, const HangMemory& memory,
                                   int64_t taken_realtime_ns, const Thresholds& times);

}  // namespace nccl_exporter::exporter
