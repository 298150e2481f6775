// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/drift.h"

#include <algorithm>
#include <set>

namespace nccl_exporter::sim {

bool LaunchBringsDrift(const std::vector<LaunchedTask>& tasks, bool replays_after_eager,
                       const Release& release) {
  if (!release.HasKernelEvents() || release.TimesEveryPart() || tasks.empty()) return false;
  if (replays_after_eager && release.ForgetsReplaysAfterEager() && release.HasApiEvents())
    return true;
  return std::any_of(tasks.begin(), tasks.end(), [&](const LaunchedTask& task) {
    const bool has_empty_parts = release.HasKernelTimes() && task.has_unplayed_channels;
    return task.is_p2p && (task.is_to_self || has_empty_parts);
  });
}

bool HasSeveralRoots(const ThreadGroup& group, int global_rank, int communicator) {
  std::set<int> roots;
  for (const RankCall& call : group.calls) {
    const bool is_ours = call.rank == global_rank && call.communicator == communicator;
    if (is_ours && call.function == Function::kBroadcast) roots.insert(call.root);
  }
  return roots.size() > 1;
}

bool CallsBringDrift(const ThreadGroup& group, int global_rank, int communicator,
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
