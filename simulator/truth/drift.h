// SPDX-License-Identifier: Apache-2.0
// The launch from which on a communicator is untimed: rule 9 of proto/README.md, implemented
// independently of the plugin.
#pragma once

#include <algorithm>
#include <set>
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

inline bool LaunchBringsDrift(const std::vector<LaunchedTask>& tasks, bool replays_after_eager,
                              const Release& release) {
  if (!release.HasKernelEvents() || release.TimesEveryPart() || tasks.empty()) return false;
  if (replays_after_eager && release.ForgetsReplaysAfterEager() && release.HasApiEvents())
    return true;
  return std::any_of(tasks.begin(), tasks.end(), [&](const LaunchedTask& task) {
    const bool has_empty_parts = release.HasKernelTimes() && task.has_unplayed_channels;
    return task.is_p2p && (task.is_to_self || has_empty_parts);
  });
}

inline bool HasSeveralRoots(const ThreadGroup& group, int global_rank, int communicator) {
  std::set<int> roots;
  for (const RankCall& call : group.calls) {
    const bool is_ours = call.rank == global_rank && call.communicator == communicator;
    if (is_ours && call.function == Function::kBroadcast) roots.insert(call.root);
  }
  return roots.size() > 1;
}

inline bool CallsBringDrift(const ThreadGroup& group, int global_rank, int communicator,
                            const Release& release) {
  const bool has_broadcast =
      std::any_of(group.calls.begin(), group.calls.end(), [&](const RankCall& call) {
        return call.rank == global_rank && call.communicator == communicator &&
               call.function == Function::kBroadcast;
      });
  if (has_broadcast && release.ForgetsBroadcasts()) return true;
  return release.JoinsBroadcasts() && HasSeveralRoots(group, global_rank, communicator);
}

}  // namespace nccl_exporter::sim
