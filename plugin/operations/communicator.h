// SPDX-License-Identifier: Apache-2.0
// Communicator: the parts that follow, complete and record its operations. Any thread.
//
//   calling thread --> OperationStarter --+
//                                         +-> OperationCompleter -> LaunchRecorder -> LaunchJudge
//   progress thread -> PartTracker -------+
//
// Each part calls those to its right. From OperationStarter on, each part is a member of the one to
// its left, and LaunchJudge holds CommunicatorState, which all share: a communicator is one object,
// and no callback follows a pointer from part to part. PartTracker is made for one callback.
//
// Every method but Open and Finalize may be called by any thread at any time; none locks,
// allocates, or makes a system call. No loop waits for another thread. The longest take a step for
// each member of a launch, for each of UnconfirmedTimes::kReleaseSteps, or for each of
// WorkItems::kWaiting calls. Tickets that are passed in come from handles: they may name an
// operation that is gone, which is counted and ignored.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_recorder.h"
#include "plugin/operations/operation_completer.h"
#include "plugin/operations/operation_starter.h"
#include "plugin/operations/part_tracker.h"
#include "plugin/trace/trace_lane.h"

namespace nccl_exporter::plugin {

class NetworkTimer;

class Communicator {
 public:
  // Under the process's lock, while no event can carry the new context yet. With
  // TimingSource::kNone operations are counted and not followed. `ranks` 0: not known. `causes`: of
  // drift, in the release that calls. `times_are_on_probation`: the release is not known, so that
  // kernel times are held until kProbationLaunches launches agree with the CPU's interval.
  void Open(TimingSource source, int rank, uint32_t ranks, layout::CommunicatorSlot* slot,
            layout::SegmentHeader* header, const DriftCauses& causes = {},
            bool times_are_on_probation = false);
  // Gives up on what is still in flight, after recording what is complete. Under the process's
  // lock.
  void Finalize();

  Recorder& recorder() { return shared().recorder(); }
  TimingSource source() const { return shared().source(); }
  bool ReadsKernels() const { return shared().ReadsKernels(); }
  bool FollowsOperations() const { return shared().FollowsOperations(); }
  // Another program changed NCCL's mask: kernel times are not believed from here on.
  void EndKernelTiming() {
    if (ReadsKernels()) shared().BeginDrift(0, DriftCause::kMaskOverride);
  }
  void LearnRank(int rank) { rank_.store(rank, std::memory_order_relaxed); }
  int rank() const { return rank_.load(std::memory_order_relaxed); }

  // Calls. By the thread that makes them.

  // `depth`: of the group's first call, 1 for a call outside of all groups.
  void NoteCallGroup(int depth) { shared().work_items().NoteGroup(depth); }
  void NoteCall(bool is_captured) { starter_.NoteCall(is_captured); }
  // A call that is made now and not captured, before anything is handed to the GPU.
  void NoteWorkItem(uint64_t now_ns) { shared().work_items().NoteCall(now_ns); }

  // Launches and operations (operation_starter.h, operation_completer.h).

  uint64_t OpenLaunch(bool is_alone = false) { return starter_.OpenLaunch(is_alone); }
  uint64_t StartOperation(const OperationStart& start) { return starter_.StartOperation(start); }
  void CloseLaunch(uint64_t ticket) { completer().CloseLaunch(ticket); }

  // Kernel channels, and proxy operations.
  PartTracker parts() { return PartTracker(completer()); }

  // Where records of its operations go while a trace is asked for.
  TraceLanes& trace_lanes() { return trace_lanes_; }

  // Times the steps of its proxy operations, apart from all the above; nullptr: they are not timed.
  // Set under the process's lock.
  NetworkTimer* network() const { return network_.load(std::memory_order_acquire); }
  void SetNetwork(NetworkTimer* network) { network_.store(network, std::memory_order_release); }
  // The memory for that, for good. Under the lock.
  NetworkTimer* network_room() const { return network_room_; }
  void SetNetworkRoom(NetworkTimer* room) { network_room_ = room; }

 private:
  friend class CommunicatorPeer;  // of the test: a thread between two steps

  CommunicatorState& shared() { return starter_.shared(); }
  const CommunicatorState& shared() const { return starter_.shared(); }
  OperationCompleter& completer() { return starter_.completer(); }
  LaunchRecorder& launch_recorder() { return completer().launch_recorder(); }

  std::atomic<int> rank_{-1};
  std::atomic<NetworkTimer*> network_{nullptr};
  NetworkTimer* network_room_ = nullptr;
  OperationStarter starter_;
  TraceLanes trace_lanes_;
};

}  // namespace nccl_exporter::plugin
