// SPDX-License-Identifier: Apache-2.0
// A plan with its tasks and their handle slots: played once when it is eager, again and again when
// a graph holds it.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/device/rank.h"
#include "simulator/loader/profiler_plugin.h"
#include "simulator/nccl/launch.h"
#include "simulator/nccl/live_communicator.h"
#include "simulator/nccl/task.h"
#include "simulator/release/play_options.h"

namespace nccl_exporter::sim {

class PreparedPlan {
 public:
  PreparedPlan(const PlayOptions& options, const ProfilerPlugin& plugin, Rank& rank,
               LiveCommunicator& communicator)
      : options_(options), plugin_(plugin), rank_(rank), communicator_(communicator) {}

  void Add(const Task& task) { tasks_.push_back(task); }
  // A Broadcast that is not announced, but is part of the kernel: as a task of its own, or joined
  // with others to one AllGatherV kernel.
  void AddUnannounced(const Task& task, bool is_joined) {
    (is_joined ? joined_ : unannounced_).push_back(task);
  }
  // Nothing that is announced.
  bool IsEmpty() const { return tasks_.empty(); }
  bool HasUnannounced() const { return !unannounced_.empty() || !joined_.empty(); }
  const LiveCommunicator& communicator() const { return communicator_; }
  // Mask of the first task that has one.
  uint32_t Mask() const;
  // Looks for a mask that was changed where it hurts: between sends and receives of a launch, of
  // which the host waits for counters that the device does not write; between the calls of a graph,
  // or a graph and what is called when it is replayed; and from 2.31 on anywhere, since only the
  // device counts what has no events.
  void CountMaskFaults(bool is_captured) const;
  void CountMaskFaultsAtReplay() const;
  // The progress thread has work, so that a graph gets a host function that announces the plan at
  // every replay.
  bool HasProxyOperations() const;

  enum class Way { kEager, kReplay, kAtCapture };
  // Group, its tasks, and all that follows from them. `never_completes`: the kernel hangs.
  void Play(const KernelTimes& kernel, Way way, bool never_completes, int64_t& now_ns);
  // The calling thread may be preempted while it plays an eager plan, but not for longer: what it
  // calls next is on time.
  void MayBePreemptedUntil(int64_t job_ns) { preempted_until_ns_ = job_ns; }
  // A replay that no host function announces.
  void PlaySilently(const KernelTimes& kernel, int64_t now_ns);
  // Counts the work that the host counts while the plan is captured.
  void CountAtCapture();

 private:
  // A work item: a collective, or a send and a receive that NCCL has joined. The first decides
  // whether the device writes.
  struct Work {
    Task* first;
    Task* second;
  };

  void StartTasks(Way way, int64_t& now_ns);
  void StopTasks(int64_t& now_ns);
  void LoadMaskOfPlan();
  void MaybeLetKernelEndFirst(uint64_t purpose, int64_t end_ns, int64_t& now_ns);
  uint64_t NextSequence(const Task& task, Way way);
  // In the order of the device.
  std::vector<Work> Works();
  void CountWork(Way way, Launch& launch, int64_t now_ns);
  void CountOnHost(const Work& work, Way way, int part);
  void RunJoined(Launch& launch, int64_t now_ns);
  // The task whose part makes the host count, or null.
  Task* CountedBy(const Work& work, int part) const;

  const PlayOptions& options_;
  const ProfilerPlugin& plugin_;
  Rank& rank_;
  LiveCommunicator& communicator_;
  std::vector<Task> tasks_;
  std::vector<Task> unannounced_;
  std::vector<Task> joined_;
  void* group_handle_ = nullptr;  // NCCL's slot
  int64_t preempted_until_ns_ = 0;
};

}  // namespace nccl_exporter::sim
