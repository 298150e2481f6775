// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth_drift.h"

#include <algorithm>
#include <set>

namespace nccl_exporter::sim {

bool LaunchBringsDrift(const std::vector<Task>& tasks, int rank, bool replays_after_eager, const Release& release) {
  if (!release.HasKernelEvents() || release.TimesEveryPart()) return false;
  return std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) {
    if ((task.mask & kKernelCh) == 0) return false;
    if (replays_after_eager && release.HasApiEvents()) return true;
    const bool has_empty_parts = release.HasKernelTimes() && task.channels.played < task.channels.announced;
    return task.is_p2p() && (task.call.peer == rank || has_empty_parts);
  });
}

bool CallsBringDrift(const ThreadGroup& group, int global_rank, int communicator, const Release& release) {
  if (!release.BroadcastIsCallOnly()) return false;
  std::set<int> roots;
  for (const RankCall& call : group.calls) {
    const bool is_ours = call.rank == global_rank && call.communicator == communicator;
    if (is_ours && call.function == Function::kBroadcast) roots.insert(call.root);
  }
  return roots.size() > 1 || (!roots.empty() && release.ForgetsBroadcasts());
}

}  // namespace nccl_exporter::sim
