// SPDX-License-Identifier: Apache-2.0
// Communicator: counts its operations once, and follows, completes and records them where that is
// possible. Any thread; operations are started by the thread that announces them: the one that
// calls NCCL, or one of the CUDA driver's that replays a graph.
//
//   calling thread --> Communicator --+
//                                     +-> OperationCompleter -> LaunchRecorder
//   progress thread -> PartTracker ---+
//
// Each part calls those to its right, which it is derived from (plugin/README.md).
//
// Every method but Open and Finalize may be called by any thread at any time; none locks,
// allocates, or makes a system call. No loop waits for another thread. The longest take a step for
// each member of a launch, for each of UnconfirmedTimes::kReleaseSteps, or for each of
// WorkItems::kWaiting calls. Tickets that are passed in come from handles: they may name an
// operation that is gone, which is counted and ignored.
//
// One thread at a time starts an operation, under the lock `is_starting_`: takes the next ticket
// and writes the entry. A thread that does not get the lock, because its holder was interrupted,
// counts its operation and does not follow it.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/nccl/vocabulary.h"
#include "plugin/operations/drift_watch.h"
#include "plugin/operations/part_tracker.h"

namespace nccl_exporter::plugin {

class NetworkTimer;

class Communicator : public PartTracker {
 public:
  // Under the process's lock, while no event can carry the new context yet.
  void Open(const CommunicatorSetup& setup) {
    StoreRelaxed(rank_, setup.rank);
    StoreRelaxed(has_identity_, setup.has_identity);
    PartTracker::Open(setup);
    Zero(announced_ns_, calls_are_announced_);
    drift_watch_.Open(setup.causes);
  }

  // NCCL's event mask, watched against a change by another program: its RAS client can, from 2.31
  // on. The copy of libnccl that has the mask may be unloaded after its last communicator was
  // finalized. The watch ends at finalize, and no callback of a communicator comes after it.
  // Under the process's lock, while no event can carry the new context yet. `shared_bits`: others
  // than those that are stored, which a chained plugin or the network windows change.
  void WatchMask(const int* mask, int stored, int shared_bits) {
    StoreRelaxed(stored_mask_, stored);
    StoreRelaxed(shared_bits_, shared_bits);
    StoreRelaxed(mask_, mask);
  }
  // The stored value stays, for a thread that has just read the mask's address.
  void UnwatchMask() { StoreRelaxed(mask_, nullptr); }
  // A look at each launch. `OverriddenMask` decides: it knows the bits of a chained plugin.
  bool MayBeOverridden() const {
    const int* const mask = LoadRelaxed(mask_);
    constexpr int kNetworkBit = 16;  // ProxyStep: our own (network_windows.h)
    return mask != nullptr &&
           (__atomic_load_n(mask, __ATOMIC_RELAXED) & ~kNetworkBit) != LoadRelaxed(stored_mask_);
  }
  // The mask that is watched, if another program has changed it; else nullptr.
  const int* OverriddenMask() const {
    const int* const mask = LoadRelaxed(mask_);
    if (mask == nullptr) return nullptr;
    const int present = __atomic_load_n(mask, __ATOMIC_RELAXED) & ~LoadRelaxed(shared_bits_);
    return present == LoadRelaxed(stored_mask_) ? nullptr : mask;
  }
  // The mask was changed: kernel times are not believed from here on.
  void EndKernelTiming(TimingReason reason) {
    UnwatchMask();
    if (ReadsKernels()) BeginDrift(0, DriftCause::kMaskOverride);
    StoreRelease(recorder().slot()->timing_reason, static_cast<uint64_t>(reason));
  }

  bool HasIdentity() const { return LoadRelaxed(has_identity_); }
  // From its first operation, once.
  [[gnu::cold]] void LearnIdentity(uint64_t id, int rank) {
    if (has_identity_.exchange(true, std::memory_order_relaxed)) return;
    StoreRelaxed(rank_, rank);
    layout::CommunicatorSlot& slot = *recorder().slot();
    StoreRelaxed(slot.communicator_id, id);
    StoreRelaxed(slot.rank, static_cast<uint64_t>(rank));
    StoreRelease(slot.has_identity, 1);
  }
  int rank() const { return LoadRelaxed(rank_); }

  // A call of the API.
  void NoteCall(bool is_captured) {
    if (!LoadRelaxed(calls_are_announced_)) StoreRelaxed(calls_are_announced_, true);
    drift_watch_.NoteCall(is_captured);
  }

  // A launch: returns its ticket, or 0 when its operations cannot be followed. `is_alone`: no other
  // thread opens one at the same time, if calls are announced. If one does, both may get one
  // ticket, and are then recorded as one launch or counted as abandoned.
  uint64_t OpenLaunch(bool is_alone = false);
  // Counts the operation; returns its ticket, or 0 when it is not followed.
  uint64_t StartOperation(const OperationStart& start);

  // Times the steps of its proxy operations, apart from all the above; nullptr: they are not timed.
  // Set under the process's lock.
  NetworkTimer* network() const { return LoadAcquire(network_); }
  void SetNetwork(NetworkTimer* network) { StoreRelease(network_, network); }
  // The memory for that, for good. Under the lock.
  NetworkTimer* network_room() const { return network_room_; }
  void SetNetworkRoom(NetworkTimer* room) { network_room_ = room; }

 private:
  friend class CommunicatorPeer;  // of the test: a thread between two steps

  // Several communicators share the overflow slot, and its Communicator.
  bool MayBeAlone() { return LoadRelaxed(calls_are_announced_) && !recorder().is_shared(); }
  uint64_t TakeEntry(const OperationStart& start, uint32_t first_item);
  void JoinLaunch(Operation& operation, uint64_t ticket, uint64_t launch_ticket);
  [[gnu::cold, gnu::noinline]] void CountUnfollowed(Function function, uint64_t launch_ticket,
                                                    bool is_followed, bool had_lock) {
    if (!had_lock) AddRelaxed(uncompared_items_, 1);  // it has no ticket
    if (is_followed) {
      recorder().CountLoss(had_lock ? Loss::kInFlightFull : Loss::kConcurrentStart);
      RejectLaunch(launch_ticket, Loss::kLaunchMemberUntimed);
      NoteUnfollowed(function, LoadRelaxed(next_operation_));
    } else if (IsDrifting()) {
      recorder().CountLoss(Loss::kCommunicatorDrifting);
    }
  }
  uint32_t NoteItem(const TryLock& lock, const OperationStart& start);
  uint64_t NotBefore(const OperationStart& start);

  DriftWatch drift_watch_;
  alignas(64) std::atomic<bool> is_starting_{false};
  // With NCCL_ENQUEUE_REARCH_ENABLE=1 none is, and a captured one is not seen.
  std::atomic<bool> calls_are_announced_{false};
  AtomicU64 next_operation_{0};  // tickets given out so far
  AtomicU64 next_launch_{0};
  // CLOCK_MONOTONIC of the latest operation's start event, if its call is not known.
  AtomicU64 announced_ns_{0};
  std::atomic<const int*> mask_{nullptr};
  std::atomic<int> stored_mask_{0};
  std::atomic<int> shared_bits_{0};
  std::atomic<int> rank_{-1};
  std::atomic<bool> has_identity_{true};
  std::atomic<NetworkTimer*> network_{nullptr};
  NetworkTimer* network_room_ = nullptr;
};

inline uint64_t Communicator::OpenLaunch(bool is_alone) {
  is_alone = is_alone && MayBeAlone();
  const uint64_t ticket = NextTicket(next_launch_, is_alone);
  Launch& launch = LaunchAt(ticket);
  if (LoadAcquire(launch.ticket) != 0 && !IsFreed(launch)) return 0;
  Zero(launch.members, launch.last_member, launch.rejection);
  StoreRelaxed(launch.pending, Launch::kOpen);
  StoreRelaxed(launch.called_after, LoadRelaxed(announced_ns_));
  StoreRelease(launch.ticket, ticket);
  // The operation that is announced next writes there: two lines that are seldom in the cache.
  const uint64_t next_operation = LoadRelaxed(next_operation_) + 1;
  __builtin_prefetch(&At(next_operation), 1);
  recorder().Prefetch(next_operation);
  return ticket;
}

inline void Communicator::JoinLaunch(Operation& operation, uint64_t ticket,
                                     uint64_t launch_ticket) {
  StoreRelaxed(operation.launch, 0);
  if (launch_ticket == 0) return;
  Launch& launch = LaunchAt(launch_ticket);
  const uint64_t whole = LoadAcquire(launch.ticket);
  if ((whole & Handle::kTicketMask) != launch_ticket ||
      LoadRelaxed(launch.pending) >= Launch::kClosed)
    return;
  StoreRelaxed(operation.previous_member, LoadRelaxed(launch.last_member));
  StoreRelaxed(launch.last_member, ticket);
  StoreRelaxed(launch.members, LoadRelaxed(launch.members) + 1);
  StoreRelaxed(operation.launch, whole);
}

// Whether it has joined that launch. A launch may have more operations than there are entries.
inline bool IsOfLaunch(const Operation& operation, uint64_t launch_ticket) {
  return launch_ticket != 0 &&
         (LoadRelaxed(operation.launch) & Handle::kTicketMask) == launch_ticket;
}

// Returns the ticket; 0 if the ring is full of operations that are truly in flight.
inline uint64_t Communicator::TakeEntry(const OperationStart& start, uint32_t first_item) {
  const uint64_t ticket = NextTicket(next_operation_, true);
  Operation& operation = At(ticket);
  if (PhaseOf(LoadAcquire(operation.state)) != Phase::kFree &&
      (IsOfLaunch(operation, start.launch) || !IsFreed(operation)))
    return 0;
  // Without an event of its call (NCCL_ENQUEUE_REARCH_ENABLE=1) its own event may come after the
  // kernel has ended.
  const bool is_call_missing = start.has_call_events && !start.call_is_bound;
  StoreRelaxed(operation.call_ns, is_call_missing ? NotBefore(start) : start.call_ns);
  StoreRelaxed(operation.bytes, start.message_bytes);
  StoreRelaxed(operation.sequence, start.sequence);
  StoreRelaxed(operation.channels, start.channels);
  StoreRelaxed(operation.function, start.function);
  StoreRelaxed(operation.owner_lane, start.function == Function::kRecv ? Handle::kMaxChannels : 0);
  StoreRelaxed(operation.call_is_bound, start.call_is_bound);
  StoreRelaxed(operation.channels_are_exact, start.channels_are_exact &&
                                                 source() != TimingSource::kProxy &&
                                                 (!start.is_untimed || start.is_symmetric));
  StoreRelaxed(operation.is_untimed, start.is_untimed);
  StoreRelaxed(operation.is_carried, start.is_carried);
  StoreRelaxed(operation.is_not_recorded, false);
  StoreRelaxed(operation.is_given_up, false);
  StoreRelaxed(operation.first_item, first_item);
  JoinLaunch(operation, ticket, start.launch);
  recorder().ShowInFlight(ticket, start);
  StoreRelease(operation.state, PhaseWord(ticket, Phase::kActive));
  return ticket;
}

// CLOCK_MONOTONIC: the kernel of an operation whose call is not known may have started before it
// was announced, but not before the launch before was.
inline uint64_t Communicator::NotBefore(const OperationStart& start) {
  const Launch& launch = LaunchAt(start.launch);
  const bool is_in_launch =
      start.launch != 0 && (LoadAcquire(launch.ticket) & Handle::kTicketMask) == start.launch;
  return is_in_launch ? LoadRelaxed(launch.called_after) : LoadRelaxed(announced_ns_);
}

inline uint32_t Communicator::NoteItem(const TryLock& lock, const OperationStart& start) {
  WorkItems& items = work_items();
  if (!start.is_replay && !start.call_is_bound) return items.NoteUncalled(NotBefore(start));
  if (!lock) return items.NoteUnordered(start.call_ns), 0;
  return start.is_replay ? items.NoteReplay(start.call_ns, start.launch)
                         : items.NoteOperation(start.call_ns, start.launch);
}

inline uint64_t Communicator::StartOperation(const OperationStart& start) {
  if (const DriftCause cause = drift_watch_.CauseIn(start);
      cause != DriftCause::kNone && ReadsKernels()) {
    BeginDrift(start.launch, cause);
  }
  const bool is_followed = FollowsOperations();
  if (is_followed) Sweep(start.call_ns);
  uint64_t ticket = 0;
  bool had_lock = false;
  {
    const TryLock lock(&is_starting_);
    had_lock = static_cast<bool>(lock);
    const uint32_t first_item = NoteItem(lock, start);
    recorder().CountStart(start.function, start.message_bytes, start.call_ns);
    if (lock && is_followed && !start.launch_is_followed)
      NextTicket(next_operation_, true);  // its place in the order
    if (lock && is_followed && start.launch_is_followed) ticket = TakeEntry(start, first_item);
    if (!start.call_is_bound) StoreRelaxed(announced_ns_, start.call_ns);
  }
  if (ticket == 0) {
    CountUnfollowed(start.function, start.launch, is_followed, had_lock);
  } else if (start.has_no_parts || start.is_carried) {
    Finish(At(ticket), ticket, start.call_ns);
  }
  return ticket;
}

}  // namespace nccl_exporter::plugin
