// SPDX-License-Identifier: Apache-2.0
// Communicator: follows, completes and records its operations. Any thread.
//
//   calling thread --> OperationStarter --+
//                                         +-> OperationCompleter -> LaunchRecorder -> LaunchJudge
//   progress thread -> PartTracker -------+
//
// Each part calls those to its right, and is derived from the one before it in the order
// CommunicatorState, LaunchJudge, LaunchRecorder, OperationCompleter, PartTracker,
// OperationStarter. So a communicator is one object, and no callback follows a pointer from part to
// part.
//
// Every method but Open and Finalize may be called by any thread at any time; none locks,
// allocates, or makes a system call. No loop waits for another thread. The longest take a step for
// each member of a launch, for each of UnconfirmedTimes::kReleaseSteps, or for each of
// WorkItems::kWaiting calls. Tickets that are passed in come from handles: they may name an
// operation that is gone, which is counted and ignored.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/operations/operation_starter.h"
#include "plugin/trace/trace_lane.h"

namespace nccl_exporter::plugin {

class NetworkTimer;

class Communicator : public OperationStarter {
 public:
  // Under the process's lock, while no event can carry the new context yet.
  void Open(const CommunicatorSetup& setup) {
    StoreRelaxed(rank_, setup.rank);
    OperationStarter::Open(setup);
  }

  // Another program changed NCCL's mask: kernel times are not believed from here on.
  void EndKernelTiming() {
    if (ReadsKernels()) BeginDrift(0, DriftCause::kMaskOverride);
  }
  void LearnRank(int rank) { StoreRelaxed(rank_, rank); }
  int rank() const { return LoadRelaxed(rank_); }

  // Where records of its operations go while a trace is asked for.
  TraceLanes& trace_lanes() { return trace_lanes_; }

  // Times the steps of its proxy operations, apart from all the above; nullptr: they are not timed.
  // Set under the process's lock.
  NetworkTimer* network() const { return LoadAcquire(network_); }
  void SetNetwork(NetworkTimer* network) { StoreRelease(network_, network); }
  // The memory for that, for good. Under the lock.
  NetworkTimer* network_room() const { return network_room_; }
  void SetNetworkRoom(NetworkTimer* room) { network_room_ = room; }

 private:
  friend class CommunicatorPeer;  // of the test: a thread between two steps

  std::atomic<int> rank_{-1};
  std::atomic<NetworkTimer*> network_{nullptr};
  NetworkTimer* network_room_ = nullptr;
  TraceLanes trace_lanes_;
};

}  // namespace nccl_exporter::plugin
