// SPDX-License-Identifier: Apache-2.0
// From where on a communicator is not timed: rule 9 of proto/README.md, written down independently of the plugin.
#pragma once

#include <vector>

#include "simulator/live_communicator.h"
#include "simulator/release.h"
#include "simulator/task.h"
#include "simulator/thread_step.h"

namespace nccl_exporter::sim {

// Whether the counters drift from this launch on. `replays_after_eager`: a captured graph's, and the communicator's
// latest call was not a captured one.
bool LaunchBringsDrift(const std::vector<Task>& tasks, int rank, bool replays_after_eager, const Release& release);

// Whether a group has Broadcasts of several roots for one rank's communicator.
bool HasSeveralRoots(const ThreadGroup& group, int global_rank, int communicator);

// Whether the calls of a group bring it on for one rank's communicator, if kernel events are on.
bool CallsBringDrift(const ThreadGroup& group, int global_rank, int communicator, const Release& release);

}  // namespace nccl_exporter::sim
