// SPDX-License-Identifier: Apache-2.0
// What a communicator does when a launch is announced and its tasks are started, by the thread that calls NCCL. Inline,
// as in channel_events.h.
#pragma once

#include "plugin/operations/communicator.h"

namespace nccl_exporter {

inline uint64_t Communicator::OpenLaunch() {
  const uint64_t ticket = NextTicket(next_launch_);
  Launch& launch = LaunchAt(ticket);
  if (LoadAcquire(launch.ticket) != 0 && !IsFreed(launch)) return 0;
  StoreRelaxed(launch.members, 0);
  StoreRelaxed(launch.last_member, 0);
  StoreRelaxed(launch.pending, Launch::kOpen);
  StoreRelaxed(launch.rejection, 0);
  StoreRelaxed(launch.called_after, LoadRelaxed(announced_ns_));
  StoreRelease(launch.ticket, ticket);
  return ticket;
}

inline void Communicator::JoinLaunch(Operation& operation, uint64_t ticket, uint64_t launch_ticket) {
  StoreRelaxed(operation.launch, 0);
  if (launch_ticket == 0) return;
  Launch& launch = LaunchAt(launch_ticket);
  const uint64_t whole = LoadAcquire(launch.ticket);
  if ((whole & Handle::kTicketMask) != launch_ticket || LoadRelaxed(launch.pending) >= Launch::kClosed) return;
  StoreRelaxed(operation.previous_member, LoadRelaxed(launch.last_member));
  StoreRelaxed(launch.last_member, ticket);
  StoreRelaxed(launch.members, LoadRelaxed(launch.members) + 1);
  StoreRelaxed(operation.launch, whole);
}

// Returns the ticket; 0 if the ring is full of operations that are truly in flight.
inline uint64_t Communicator::TakeEntry(const OperationStart& start, uint32_t first_item) {
  const uint64_t ticket = NextTicketAlone(next_operation_);
  Operation& operation = At(ticket);
  if (PhaseOf(LoadAcquire(operation.state)) != Phase::kFree && !IsFreed(operation)) return 0;
  // Without an event of its call (NCCL_ENQUEUE_REARCH_ENABLE=1) its own event may come after the kernel has ended.
  const bool is_call_missing = start.has_call_events && !start.call_is_bound;
  StoreRelaxed(operation.call_ns, is_call_missing ? NotBefore(start) : start.call_ns);
  StoreRelaxed(operation.bytes, start.message_bytes);
  StoreRelaxed(operation.sequence, start.sequence);
  operation.channels.store(start.channels, std::memory_order_relaxed);
  operation.function.store(start.function, std::memory_order_relaxed);
  operation.owner_lane.store(start.function == Function::kRecv ? Handle::kMaxChannels : 0, std::memory_order_relaxed);
  operation.call_is_bound.store(start.call_is_bound, std::memory_order_relaxed);
  operation.channels_are_exact.store(
      start.channels_are_exact && source() != TimingSource::kProxy && (!start.is_untimed || start.is_symmetric),
      std::memory_order_relaxed);
  operation.is_untimed.store(start.is_untimed, std::memory_order_relaxed);
  operation.is_carried.store(start.is_carried, std::memory_order_relaxed);
  operation.is_not_recorded.store(false, std::memory_order_relaxed);
  operation.is_given_up.store(false, std::memory_order_relaxed);
  operation.first_item.store(first_item, std::memory_order_relaxed);
  JoinLaunch(operation, ticket, start.launch);
  recorder_.ShowInFlight(ticket, start);
  StoreRelease(operation.state, PhaseWord(ticket, Phase::kActive));
  return ticket;
}

// CLOCK_MONOTONIC: the kernel of an operation whose call is not known did not start before. It may have started before
// it was announced, but not before the launch before was.
inline uint64_t Communicator::NotBefore(const OperationStart& start) {
  const Launch& launch = LaunchAt(start.launch);
  const bool is_in_launch = start.launch != 0 && (LoadAcquire(launch.ticket) & Handle::kTicketMask) == start.launch;
  return is_in_launch ? LoadRelaxed(launch.called_after) : LoadRelaxed(announced_ns_);
}

inline uint32_t Communicator::NoteItem(const OperationStart& start) {
  if (start.is_replay) return work_items_.NoteReplay(start.call_ns, start.launch);
  if (start.call_is_bound) return work_items_.NoteOperation(start.call_ns, start.launch);
  return work_items_.NoteUncalled(NotBefore(start));
}

inline uint64_t Communicator::StartOperation(const OperationStart& start) {
  if (const DriftCause cause = drift_watch_.CauseIn(start); cause != DriftCause::kNone && ReadsKernels()) {
    BeginDrift(start.launch, cause);
  }
  const bool is_followed = FollowsOperations();
  if (is_followed && LoadRelaxed(oldest_) < LoadRelaxed(latest_)) Sweep(start.call_ns);
  uint64_t ticket = 0;
  bool had_turn = false;
  {
    const Turn turn{&is_starting_};
    had_turn = static_cast<bool>(turn);
    const uint32_t first_item = NoteItem(start);
    recorder_.CountStart(turn, start.function, start.message_bytes, start.call_ns);
    if (turn && is_followed && !start.launch_is_followed) NextTicketAlone(next_operation_);  // its place in the order
    if (turn && is_followed && start.launch_is_followed) ticket = TakeEntry(start, first_item);
    if (!start.call_is_bound) StoreRelaxed(announced_ns_, start.call_ns);
  }
  if (recorder_.HasDeferredStarts()) ShowDeferredStarts();
  if (ticket == 0) {
    NoteUnfollowed(start, is_followed, had_turn);
  } else if (start.has_no_parts || start.is_carried) {
    Finish(At(ticket), ticket, start.call_ns);
  }
  return ticket;
}

}  // namespace nccl_exporter
