// SPDX-License-Identifier: Apache-2.0
#include "plugin/communicator.h"

namespace nccl_exporter {

void Communicator::Open(TimingSource source, int rank, uint32_t ranks, layout::CommunicatorSlot* slot,
                        layout::SegmentHeader* header) {
  source_.store(source, std::memory_order_relaxed);
  rank_.store(rank, std::memory_order_relaxed);
  reads_gpu_clock_.store(source == TimingSource::kKernel, std::memory_order_relaxed);
  is_drifting_.store(false, std::memory_order_relaxed);
  plausibility_.Reset();
  recorder_.Open(slot, header, ranks);
}

// Launches.

uint64_t Communicator::OpenLaunch() {
  const uint64_t ticket = NextTicket(next_launch_);
  Launch& launch = LaunchAt(ticket);
  if (LoadAcquire(launch.ticket) != 0) EndIfOver(launch, NowNs());
  if (LoadAcquire(launch.ticket) != 0) return 0;  // its operations are truly in flight: the ring is full
  StoreRelaxed(launch.members, 0);
  StoreRelaxed(launch.last_member, 0);
  StoreRelaxed(launch.pending, Launch::kOpen);
  StoreRelease(launch.ticket, ticket);
  return ticket;
}

void Communicator::CloseLaunch(uint64_t ticket) {
  Launch& launch = LaunchAt(ticket);
  if ((LoadAcquire(launch.ticket) & Handle::kTicketMask) != ticket || ticket == 0) {
    return recorder_.CountLoss(Loss::kStaleHandle);
  }
  Close(launch, 0);
}

void Communicator::Close(Launch& launch, uint64_t now_ns) {
  const uint64_t change = LoadRelaxed(launch.members) + Launch::kClosed;
  const uint64_t before = launch.pending.fetch_add(change, std::memory_order_acq_rel);
  if (before >= Launch::kClosed) {  // closed twice
    launch.pending.fetch_sub(change, std::memory_order_acq_rel);
  } else if (before + change == Launch::kDone) {
    RecordLaunch(launch, now_ns);
  }
}

void Communicator::JoinLaunch(Operation& operation, uint64_t ticket, uint64_t launch_ticket) {
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

// Starts.

uint64_t Communicator::StartOperation(const OperationStart& start) {
  recorder_.CountStart(start.function, start.message_bytes, start.call_ns);
  if (source() == TimingSource::kNone) {
    if (is_drifting_.load(std::memory_order_relaxed)) recorder_.CountLoss(Loss::kCommunicatorDrifting);
    return 0;
  }
  Sweep(start.call_ns);
  const uint64_t ticket = NextTicket(next_operation_);
  if (!start.launch_is_followed || !TakeEntry(ticket, start)) {
    recorder_.CountLoss(Loss::kInFlightFull);
    return 0;
  }
  if (start.has_no_parts) Finish(At(ticket), ticket, start.call_ns);
  return ticket;
}

bool Communicator::TakeEntry(uint64_t ticket, const OperationStart& start) {
  Operation& operation = At(ticket);
  if (PhaseOf(LoadAcquire(operation.state)) != Phase::kFree) MakeRoom(operation);
  const uint64_t former = LoadAcquire(operation.state);
  if (PhaseOf(former) != Phase::kFree) return false;
  if (!Exchange(operation.state, former, PhaseWord(ticket, Phase::kWriting))) return false;

  StoreRelaxed(operation.call_ns, start.call_ns);
  StoreRelaxed(operation.bytes, start.message_bytes);
  StoreRelaxed(operation.sequence, start.sequence);
  operation.channels.store(start.channels, std::memory_order_relaxed);
  operation.function.store(start.function, std::memory_order_relaxed);
  operation.call_is_bound.store(start.call_is_bound, std::memory_order_relaxed);
  operation.channels_are_exact.store(start.channels_are_exact && source() != TimingSource::kProxy && !start.is_untimed,
                                     std::memory_order_relaxed);
  operation.is_untimed.store(start.is_untimed, std::memory_order_relaxed);
  operation.is_given_up.store(false, std::memory_order_relaxed);
  JoinLaunch(operation, ticket, start.launch);
  recorder_.ShowInFlight(ticket, start);
  StoreRelease(operation.state, PhaseWord(ticket, Phase::kActive));
  return true;
}

// The ring has come round to an operation that is still held: ends it, and those that share its launch, if they are
// over or later ones are. An operation that is truly in flight keeps its place: it is what a hang is told by.
void Communicator::MakeRoom(Operation& operation) {
  const uint64_t now_ns = NowNs();
  const uint64_t state = LoadAcquire(operation.state);
  const uint64_t ticket = TicketOf(state);
  const uint64_t launch_ticket = LoadRelaxed(operation.launch);
  if (launch_ticket == 0) return EndIfOver(operation, ticket, now_ns);
  Launch& launch = LaunchAt(launch_ticket);
  if (LoadAcquire(launch.ticket) != launch_ticket) {  // its launch was recorded without it
    if (Exchange(operation.state, PhaseWord(ticket, Phase::kDone), PhaseWord(ticket, Phase::kFree))) {
      recorder_.CountLoss(Loss::kOperationAbandoned);
    }
    return;
  }
  EndIfOver(launch, now_ns);
}

// The ring has come round to the launch: whoever holds it open will not close it any more.
void Communicator::EndIfOver(Launch& launch, uint64_t now_ns) {
  uint64_t member = LoadRelaxed(launch.last_member);
  for (uint64_t i = 0; i < kOperationEntries && member != 0; ++i) {
    Operation& operation = At(member);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    EndIfOver(operation, member, now_ns);
    member = previous;
  }
  Close(launch, now_ns);
}

void Communicator::EndIfOver(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  const uint64_t parts = LoadRelaxed(operation.parts_ticket) == ticket ? LoadRelaxed(operation.parts) : 0;
  const bool cannot_be_seen = MayHaveNoParts(operation) && parts == 0;
  if (AllStopped(parts) || cannot_be_seen || LoadRelaxed(latest_) > ticket) Resolve(operation, ticket, now_ns);
}

}  // namespace nccl_exporter
