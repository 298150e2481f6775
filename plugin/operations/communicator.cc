// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/communicator.h"

#include "plugin/operations/channel_events.h"

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

// By one thread only, whoever else tries: each attempt that fails is a member that was done meanwhile.
void Communicator::Close(Launch& launch, uint64_t now_ns) {
  const uint64_t change = LoadRelaxed(launch.members) + Launch::kClosed;
  uint64_t pending = LoadRelaxed(launch.pending);
  do {
    if (pending >= Launch::kClosed) return;
  } while (!launch.pending.compare_exchange_weak(pending, pending + change, std::memory_order_acq_rel));
  if (pending + change == Launch::kDone) RecordLaunch(launch, now_ns);
}

void Communicator::RejectLaunch(uint64_t ticket, Loss loss) {
  Launch& launch = LaunchAt(ticket);
  if (ticket == 0 || (LoadAcquire(launch.ticket) & Handle::kTicketMask) != ticket) return;
  if (LoadRelaxed(launch.rejection) == 0) StoreRelaxed(launch.rejection, 1 + static_cast<uint64_t>(loss));
}

// Phases of kernels.

bool Communicator::StartPhase(uint64_t abbreviated, uint32_t channel, uint32_t phase, uint64_t time_ns) {
  if (!TakesPhases()) return false;  // the mask was changed by someone else
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  const uint64_t bit = uint64_t{1} << channel;
  if (LoadRelaxed(operation.parts_ticket) != ticket || !(LoadRelaxed(operation.seen) & bit)) {
    return recorder_.CountLoss(Loss::kUnknownHandle), false;
  }
  const uint32_t channel_start_ns = operation.start_low_ns[channel].load(std::memory_order_relaxed);
  operation.phases.Start(ticket, channel, phase, time_ns, channel_start_ns);
  return true;
}

void Communicator::StopPhase(uint64_t abbreviated, uint64_t time_ns) {
  if (!TakesPhases()) return;
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  if (!operation.phases.Stop(TicketOf(state), time_ns)) recorder_.CountLoss(Loss::kStopWithoutStart);
}

std::optional<PhaseTimes> Communicator::PhasesOf(const Operation& operation, uint64_t ticket) {
  if (!operation.phases.HasAny(ticket)) return std::nullopt;
  const auto means = operation.phases.Means(LoadRelaxed(operation.seen), LoadRelaxed(operation.last_stop_ns));
  if (!means) recorder_.CountLoss(Loss::kPhaseMismatch);
  return means;
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
