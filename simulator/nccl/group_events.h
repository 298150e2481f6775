// SPDX-License-Identifier: Apache-2.0
// The events of NCCL's API on one calling thread (2.28 and later): GroupApi, CollApi, P2pApi and
// KernelLaunch.
#pragma once

#include <cstdint>

#include "simulator/loader/profiler_plugin.h"
#include "simulator/nccl/live_communicator.h"
#include "simulator/release/release.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {

// A thread's slots as NCCL keeps them: that of CollApi is never cleared, so that a call without an
// event stops the old handle again. Before 2.28 there are no such events; the calls then only say
// which mask is in effect.
class GroupEvents {
 public:
  GroupEvents(const Release& release, const ProfilerPlugin& plugin)
      : release_(release), plugin_(plugin) {}

  // A call inside of the group. Returns the mask in effect and the handle that its task has as
  // parent.
  struct CallEvent {
    uint32_t mask;
    void* handle;
  };
  CallEvent Call(LiveCommunicator& communicator, const RankCall& call, int depth, bool is_captured,
                 int64_t& now_ns);
  // ncclGroupEnd begins; ends.
  void BeginEnd(int64_t& now_ns);
  void End(int64_t& now_ns);

  void LaunchKernel(const LiveCommunicator& communicator, uint32_t mask, int64_t& now_ns);

 private:
  void OpenGroup(const LiveCommunicator& communicator, int depth, bool is_captured,
                 int64_t& now_ns);
  bool Starts(uint32_t bits) const { return (mask_ & bits) != 0; }

  const Release& release_;
  const ProfilerPlugin& plugin_;
  uint32_t mask_ = 0;
  void* group_handle_ = nullptr;
  void* coll_handle_ = nullptr;
  void* p2p_handle_ = nullptr;
};

// The host's time for one callback: every event of a thread is a little later than the one before.
inline constexpr int64_t kCallbackNs = 20;

}  // namespace nccl_exporter::sim
