// SPDX-License-Identifier: Apache-2.0
// A plan that is on the GPU: what its kernel and its proxy operations will report, and what the
// ground truth gets of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "simulator/device/rank.h"
#include "simulator/device/work_ring.h"
#include "simulator/loader/profiler_plugin.h"
#include "simulator/nccl/live_communicator.h"
#include "simulator/nccl/proxy_events.h"
#include "simulator/nccl/task.h"
#include "simulator/network/proxy_operation.h"
#include "simulator/release/play_options.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {

struct KernelTimes {
  int64_t start_ns = 0;
  int64_t stop_ns = 0;
  std::shared_ptr<const LaunchTransfer> transfer = nullptr;  // null: nothing crosses the network

  static KernelTimes Of(const Plan& plan) {
    return {plan.kernel_start_ns, plan.kernel_stop_ns, plan.transfer};
  }
};

// The part of the kernel's time that a task has, which shares it with others; 0 to 1.
struct LaunchSlice {
  double from = 0;
  double until = 1;
};

// Lives until its last event is delivered; the delivering threads hold it. The members' intervals
// are written by one thread, that of the kernel events.
class Launch : public std::enable_shared_from_this<Launch> {
 public:
  Launch(const PlayOptions& options, const ProfilerPlugin& plugin, Rank& rank,
         LiveCommunicator& communicator, const KernelTimes& kernel, size_t most_tasks,
         bool never_completes, bool is_replay)
      : options_(options),
        plugin_(plugin),
        rank_(rank),
        communicator_(communicator),
        kernel_(kernel),
        never_completes_(never_completes || kernel.stop_ns >= kNever),
        is_replay_(is_replay),
        is_timed_(!communicator.is_drifting.load()),
        number_(most_tasks > 0 ? ++communicator.launches : communicator.launches) {
    members_.reserve(most_tasks);  // so that members stay where they are while the delivering
                                   // threads write to them
  }

  // The task counts as an operation; what of it will be reported is posted to the rank's threads.
  // Returns when the last of its events is due.
  int64_t Upload(const Task& task, const LaunchSlice& slice, int64_t now_ns);
  // The device gets a work item on a channel; `writes`: it has the bit of kernel events.
  void RunOnDevice(int channel, bool writes, int64_t now_ns);
  // All tasks are uploaded.
  void EndUpload();

 private:
  // A stretch of time on one of NCCL's connections.
  struct Part {
    size_t member;
    void* parent;  // handle of the task
    int channel;
    int64_t start_due_ns;
    int64_t stop_due_ns;
  };
  // Times in the events of a channel.
  struct GpuTimes {
    uint64_t start_ns;
    uint64_t stop_ns;
  };
  // An operation of the progress thread, on one channel and in one direction.
  struct NetworkWork {
    size_t member;
    bool is_foreign;  // made for another process
    ProxyEvents events;
  };
  struct NetworkMoments {
    int64_t start_ns = 0;  // its event
    int64_t begin_ns = 0;  // its connection is free for it
  };

  int64_t PostKernelEvents(const Task& task, size_t member, int64_t now_ns);
  int64_t PostPolledEvents(const Task& task, size_t member, int64_t now_ns);
  bool HasProxyEvents(const Task& task) const;
  bool HasNothingToShow(const Task& task) const;
  int64_t PostNetworkEvents(const Task& task, const LaunchSlice& slice, size_t member,
                            int64_t now_ns);
  std::vector<std::vector<StepTimes>> StepsOnNetwork(const Task& task,
                                                     const LaunchSlice& slice) const;
  int PeerOf(const Task& task, bool is_send) const;
  int StepsOf(const Task& task) const;
  uint64_t BytesOnHop(const Task& task) const;
  uint64_t BytesOnChannel(const Task& task) const;
  NetworkMoments MomentsOn(int channel, bool is_send, int peer, const StepTimes& last_step,
                           int64_t now_ns);
  int64_t PostOnChannel(const Task& task, size_t member, int channel, bool is_send,
                        const std::vector<StepTimes>& times, int64_t now_ns);
  void AccountUnseen(ProxyOperation operation, int64_t begin_ns);
  int64_t Post(const std::shared_ptr<NetworkWork>& work, const NetworkMoments& moments);
  void PostStale(const ProxyIdentity& identity, const ProxyOperation& operation, int64_t due_ns);
  void PostStopOfStale(int channel, bool is_send, int64_t due_ns);
  void PostProgress(const std::shared_ptr<NetworkWork>& work, int64_t due_ns);
  void Start(NetworkWork& work, int64_t now_ns);
  void Progress(const std::shared_ptr<NetworkWork>& work, int64_t now_ns);
  void Stop(NetworkWork& work, int64_t now_ns);
  void StartKernelChannel(const Part& part, ChannelConnection& connection, uint64_t gpu_ns,
                          int64_t now_ns);
  void StopKernelChannel(const Part& part, ChannelConnection& connection, uint64_t gpu_ns,
                         int64_t now_ns);
  // It waits on its stream for one that hangs.
  bool NeverStarts() const { return kernel_.start_ns >= kNever; }
  // The kernel's work on one channel; what the GPU's clock shows at its ends.
  WorkItem ItemOn(int channel) const;
  GpuTimes TimesOf(const WorkItem& item) const;

  void Carry(LaunchMember& shown, LaunchMember& real) const;
  void NoteWaits(const Task& task);
  // Where there are faults: what the host waits for, and what of it is lost, and what is reported
  // in the end.
  ChannelConnection& ConnectionOf(const Task& task, int channel) const;
  uint64_t AwaitedBy(const Task& task, int part) const;
  uint64_t PolledCounter(uint64_t awaited) const;
  std::shared_ptr<ChannelConnection> SlotOf(ChannelConnection& connection) const;
  bool GetsStuck(ChannelConnection& connection) const;
  // Loses events of the first channel that the launch has events on.
  void LoseEvents(PolledWork& work) const;
  void ReportStart(const Part& part, ChannelConnection& connection, const WorkItem* shown,
                   int64_t now_ns);
  void ReportStop(const Part& part, ChannelConnection& connection, const WorkItem* shown,
                  int64_t now_ns);
  void EndPart();
  // A share of `most_ns` that depends on nothing but the event.
  int64_t DelayNs(int64_t most_ns, int channel, int purpose) const;

  const PlayOptions& options_;
  const ProfilerPlugin& plugin_;
  Rank& rank_;
  LiveCommunicator& communicator_;
  const KernelTimes kernel_;
  const bool never_completes_;  // its kernel hangs: starts without stops
  const bool is_replay_;
  const bool is_timed_;
  const uint64_t number_;  // of the launches of its communicator that announce anything, from 1
  std::vector<LaunchMember> members_;
  std::vector<LaunchMember> true_members_;  // with the intervals of the kernel
  int64_t proxy_starts_due_ns_ = 0;
  bool has_polled_parts_ = false;
  std::atomic<int> open_parts_ = 1;  // the upload is one
};

}  // namespace nccl_exporter::sim
