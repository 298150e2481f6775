// SPDX-License-Identifier: Apache-2.0
// Task that NCCL makes of a call, with its mask, its channels and its handle, and the Coll or P2p
// event that announces it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/nccl/live_communicator.h"
#include "simulator/release/descriptor.h"
#include "simulator/release/play_options.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {

// The channels of a task: `announced` is what its event says, `played` how many have kernel events.
struct Channels {
  int low = 0;
  int announced = 1;
  int used = 1;
  int played = 1;
};

struct Task {
  RankCall call = {};
  uint64_t message_bytes = 0;  // as far as NCCL reports it to the plugin; see MessageBytesOf
  uint32_t mask = 0;           // that was in effect when the call was made
  void* parent = nullptr;      // handle of the call's event
  void* handle = nullptr;      // NCCL's slot of the Coll or P2p handle
  Channels channels = {};
  // Counters that the host waits for on each channel, from the lowest; set when the work is
  // counted, and kept over replays.
  std::vector<uint64_t> awaited = {};
  bool uses_collnet = false;
  bool is_symmetric = false;
  bool is_carried = false;  // the events of its plan's first task are its own, too
  bool crosses_network = false;

  bool is_p2p() const { return call.peer >= 0; }
  bool has_kernel_bit() const { return (mask & kKernelCh) != 0; }
};

Task MakeTask(const RankCall& call, const LiveCommunicator& communicator,
              const PlayOptions& options);

// Whether the plan of these calls runs on symmetric kernels. All tasks of such a plan have one
// function (2.31.2 src/scheduler/symmetric_sched.cc ncclSymmetricTaskScheduler). A simplification:
// NCCL makes plans of their own for the tasks of a mixed group; here the whole group runs as
// without symmetric windows.
bool IsSymmetric(const std::vector<RankCall>& calls, const LiveCommunicator& communicator,
                 const PlayOptions& options);
// The place of such a task in its plan, from 0, decides which channels it has.
void MakeSymmetric(Task& task, size_t place, bool is_captured);

// Distance to the peer, in the direction of the data. NCCL joins the send and the receive of one
// distance to one work item, on the channels of that distance (2.30.7 src/enqueue.cc
// scheduleP2pTasksToPlan).
int DistanceOf(const RankCall& call, int rank, int ranks);

// Whether a task is announced to a plugin with this mask, given the handle of its Group.
bool IsAnnounced(const Task& task, const Release& release, const void* group_handle);

// Coll or P2p.
Descriptor DescribeTask(const Task& task, const LiveCommunicator& communicator,
                        const Release& release, void* group_handle, uint64_t sequence);

}  // namespace nccl_exporter::sim
