// SPDX-License-Identifier: Apache-2.0
#include "plugin/communicator.h"

namespace nccl_exporter {

void Communicator::Open(TimingSource source, int rank, uint32_t ranks, layout::CommunicatorSlot* slot,
                        layout::SegmentHeader* header, const DriftCauses& causes, bool times_are_on_probation) {
  DropHeld(CauseOfDoubt());  // what a former communicator's finalize could not, for another thread was in its turn
  source_.store(source, std::memory_order_relaxed);
  rank_.store(rank, std::memory_order_relaxed);
  reads_gpu_clock_.store(source == TimingSource::kKernel, std::memory_order_relaxed);
  is_drifting_.store(false, std::memory_order_relaxed);
  is_contradicted_.store(false, std::memory_order_relaxed);
  StoreRelaxed(announced_ns_, 0);
  StoreRelaxed(unfollowed_until_, 0);
  for (Word& unfollowed : unfollowed_) StoreRelaxed(unfollowed, 0);
  drift_watch_.Open(causes);
  plausibility_.Reset();
  work_items_.Open();
  StoreRelaxed(uncompared_items_, 0);
  probation_left_.store(times_are_on_probation ? kProbationLaunches : 0, std::memory_order_relaxed);
  dates_starts_.store(false, std::memory_order_relaxed);
  held_times_.Clear();
  recorder_.Open(slot, header, ranks);
  recorder_.ShowProbation(probation_left_.load(std::memory_order_relaxed));
}

// Launches.

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

void Communicator::RejectLaunch(uint64_t ticket, Loss loss) {
  Launch& launch = LaunchAt(ticket);
  if (ticket == 0 || (LoadAcquire(launch.ticket) & Handle::kTicketMask) != ticket) return;
  if (LoadRelaxed(launch.rejection) == 0) StoreRelaxed(launch.rejection, 1 + static_cast<uint64_t>(loss));
}

// Drift.

void Communicator::BeginDrift(uint64_t launch_ticket, DriftCause cause) {
  RejectLaunch(launch_ticket, Loss::kDrift);
  if (!is_drifting_.exchange(true, std::memory_order_relaxed)) recorder_.ShowDrift(cause);
}

// Starts.

void Communicator::NoteUnfollowed(const OperationStart& start, bool is_followed, bool had_turn) {
  if (!had_turn) AddRelaxed(uncompared_items_, 1);  // it has no ticket
  if (is_followed) {
    recorder_.CountLoss(had_turn ? Loss::kInFlightFull : Loss::kConcurrentStart);
    RejectLaunch(start.launch, Loss::kCompanion);
    AddRelaxed(unfollowed_[static_cast<size_t>(start.function)], 1);
    StoreRelease(unfollowed_until_, LoadRelaxed(next_operation_));
  } else if (is_drifting_.load(std::memory_order_relaxed)) {
    recorder_.CountLoss(Loss::kCommunicatorDrifting);
  }
}

bool Communicator::IsFreed(Operation& operation) {
  MakeRoom(operation);
  return PhaseOf(LoadAcquire(operation.state)) == Phase::kFree;
}

bool Communicator::IsFreed(Launch& launch) {
  EndIfOver(launch, NowNs());
  return LoadAcquire(launch.ticket) == 0;
}

// Ends an operation, and those that share its launch, if they are over or later ones are. One that is truly in flight
// keeps its place: it is what a hang is told by.
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
  const Progress progress = ProgressOf(operation, ticket);
  const bool cannot_be_seen = MayHaveNoParts(operation) && progress == Progress::kNoPart;
  // Between two of its channels a running operation looks as if it were over.
  const bool is_over =
      progress == Progress::kAllStopped && !operation.channels_are_exact.load(std::memory_order_relaxed);
  if (is_over || cannot_be_seen || LoadRelaxed(latest_) > ticket) Resolve(operation, ticket, now_ns);
}

}  // namespace nccl_exporter
