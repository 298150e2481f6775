// SPDX-License-Identifier: Apache-2.0
// The launch from which on a communicator is untimed: rule 9 of proto/README.md, implemented
// independently of the plugin.
#pragma once

#include <vector>

#include "simulator/release/release.h"
#include "simulator/truth/ground_truth_sink.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {

// Whether the counters drift from this launch on. `replays_after_eager`: a captured graph's, and
// the communicator's latest call was not a captured one.
bool LaunchBringsDrift(const std::vector<LaunchedTask>& tasks, bool replays_after_eager,
                       const Release& release);

// Whether a group has Broadcasts of several roots for one rank's communicator.
bool HasSeveralRoots(const ThreadGroup& group, int global_rank, int communicator);

// Whether the calls of a group bring it on for one rank's communicator, if kernel events are on.
bool CallsBringDrift(const ThreadGroup& group, int global_rank, int communicator,
                     const Release& release);

}  // namespace nccl_exporter::sim
