// SPDX-License-Identifier: Apache-2.0
// A plan with its tasks and their handle slots: played once when it is eager, again and again when a graph holds it.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/launch.h"
#include "simulator/live_communicator.h"
#include "simulator/play_options.h"
#include "simulator/profiler_plugin.h"
#include "simulator/rank.h"
#include "simulator/task.h"

namespace nccl_exporter::sim {

class PreparedPlan {
 public:
  PreparedPlan(const PlayOptions& options, const ProfilerPlugin& plugin, Rank& rank, LiveCommunicator& communicator)
      : options_(options), plugin_(plugin), rank_(rank), communicator_(communicator) {}

  void Add(const Task& task) { tasks_.push_back(task); }
  // A task that is not announced, but is part of the kernel.
  void AddUncounted(const Task& task) { uncounted_.push_back(task); }
  // Nothing that is announced.
  bool IsEmpty() const { return tasks_.empty(); }
  bool HasUncounted() const { return !uncounted_.empty(); }
  const LiveCommunicator& communicator() const { return communicator_; }
  // Of the first task that has one.
  uint32_t Mask() const;
  // Looks for a mask that was changed where it hurts: between sends and receives of a launch, of which the host waits
  // for counters that the device does not write; between the calls of a graph, or a graph and what is called when it is
  // replayed; and from 2.31 on anywhere, since only the device counts what has no events.
  void CountMaskFaults(bool is_captured) const;
  void CountMaskFaultsAtReplay() const;
  // The progress thread has work, so that a graph gets a host function that announces the plan at every replay.
  bool HasProxyOperations() const;

  enum class Way { kEager, kReplay, kAtCapture };
  // Group, its tasks, and all that follows from them. `never_completes`: the kernel hangs.
  void Play(const KernelTimes& kernel, Way way, bool never_completes, int64_t& now_ns);

 private:
  void StartTasks(Way way, int64_t& now_ns);
  void StopTasks(int64_t& now_ns);
  void LoadMaskOfPlan();
  void MaybeLetKernelEndFirst(int64_t last_due_ns, int64_t& now_ns);
  uint64_t NextSequence(const Task& task, Way way);

  const PlayOptions& options_;
  const ProfilerPlugin& plugin_;
  Rank& rank_;
  LiveCommunicator& communicator_;
  std::vector<Task> tasks_;
  std::vector<Task> uncounted_;
  void* group_handle_ = nullptr;  // NCCL's slot
};

}  // namespace nccl_exporter::sim
