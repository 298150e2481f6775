// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/launch_recorder.h"

namespace nccl_exporter::plugin {

void LaunchRecorder::Open(const CommunicatorSetup& setup) {
  DropHeld();
  CommunicatorState::Open(setup);
  Zero(is_contradicted_, dates_starts_, unfollowed_until_);
  Zero(unfollowed_);
  Zero(late_);
  StoreRelaxed(probation_left_, setup.times_are_on_probation ? kProbationLaunches : 0);
  timestamp_check_.Reset();
  slew_watch_.Reset();
  unconfirmed_times_.Clear();
  recorder().ShowProbation(LoadRelaxed(probation_left_));
}

void LaunchRecorder::BeginContradiction() {
  StoreRelaxed(is_contradicted_, true);
  DropHeld(Loss::kDrift);
  BeginDrift(0, DriftCause::kContradiction);
}

void LaunchRecorder::Hold(const LaunchRecord& record, const Completion& completion) {
  const uint64_t dropped = unconfirmed_times_.MakeRoom(recorder());
  if (dropped != 0) recorder().CountLosses(CauseOfDoubt(), dropped);
  unconfirmed_times_.Keep(record.last_member, completion, record.uncompared_before);
}

void LaunchRecorder::ReleaseHeld(uint64_t most) {
  const uint64_t dropped = unconfirmed_times_.Release(recorder(), most);
  if (dropped != 0) recorder().CountLosses(Loss::kRingOverrun, dropped);
}

void LaunchRecorder::Record(Launch& launch, uint64_t now_ns) {
  if (now_ns == 0) now_ns = NowNs();
  RecordMembers(LoadRelaxed(launch.last_member), LoadRelaxed(launch.members), &launch, now_ns);
  StoreRelease(launch.ticket, 0);
}

[[gnu::flatten]] void LaunchRecorder::RecordMembers(uint64_t last_member, uint64_t members,
                                                    const Launch* launch, uint64_t now_ns) {
  {
    // First: its locked instruction waits until all stores before it are visible.
    const TryLock lock{&is_recording_};
    LaunchRecord record{*this, last_member, members, launch, now_ns};
    RecordUnder(lock, record);
    const uint64_t unfollowed_until = LoadAcquire(unfollowed_until_);
    if (lock && unfollowed_until != 0 && last_member > unfollowed_until)
      CompleteUnfollowed(unfollowed_until, now_ns);
  }
  if (LoadRelaxed(has_late_)) AddLate(now_ns);
}

// Every member that has stopped and is not timed is counted once: by what is wrong with its own
// time stamps, with those of its launch, or else as an untimed member.
void LaunchRecorder::RecordUnder(const TryLock& lock, LaunchRecord& record) {
  record.Gather();
  if (const uint64_t good = record.CountGood(); good != 0)
    record.belief = BeliefIn(lock, record, good);
  if (record.belief == Belief::kNo && lock) timestamp_check_.EndPatience();
  if (lock && !unconfirmed_times_.IsEmpty()) ReleaseHeld(UnconfirmedTimes::kReleaseSteps);
  uint64_t ticket = record.last_member;
  for (uint64_t i = 0; i < record.members && ticket != 0; ++i) {
    Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kDone)) return;
    if (!LoadRelaxed(operation.is_not_recorded)) RecordMember(lock, record, operation, ticket);
    recorder().HideInFlight(ticket);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    StoreRelease(operation.state, PhaseWord(ticket, Phase::kFree));
    ticket = previous;
  }
}

// `good`: members with good time stamps, which are counted if they are not believed.
Belief LaunchRecorder::BeliefIn(const TryLock& lock, LaunchRecord& record, uint64_t good) {
  const uint64_t rejection = record.rejection();
  if (rejection != 0)
    return recorder().CountLosses(static_cast<Loss>(rejection - 1), good), Belief::kNo;
  if (!lock) return recorder().CountLosses(Loss::kConcurrentRecording, good), Belief::kNo;
  return ReadsGpuClock() ? Judge(record, good) : Belief::kYes;
}

void LaunchRecorder::RecordMember(const TryLock& lock, const LaunchRecord& record,
                                  const Operation& operation, uint64_t ticket) {
  const Function function = LoadRelaxed(operation.function);
  if (!lock) {
    AddRelaxed(late_[static_cast<size_t>(function)], 1);
    return StoreRelease(has_late_, true);
  }
  if (record.IsTimed(operation, ticket)) {
    const Completion completion = record.TimesOf(operation);
    record.belief == Belief::kLater ? Hold(record, completion) : recorder().RecordTimes(completion);
  }
  recorder().CountCompleted(function, record.now_ns);
}

void LaunchRecorder::AddCompleted(Counts& counts, uint64_t now_ns) {
  for (size_t function = 0; function < kFunctionCount; ++function) {
    const uint64_t count = counts[function].exchange(0, std::memory_order_acq_rel);
    if (count != 0) recorder().CountCompleted(static_cast<Function>(function), now_ns, count);
  }
}

void LaunchRecorder::AddLate(uint64_t now_ns) {
  const TryLock lock{&is_recording_};
  if (lock && has_late_.exchange(false)) AddCompleted(late_, now_ns);
}

void LaunchRecorder::CompleteUnfollowed(uint64_t until, uint64_t now_ns) {
  if (CompareExchange(unfollowed_until_, until, 0)) AddCompleted(unfollowed_, now_ns);
}

void LaunchRecorder::Finalize(bool completes_unfollowed, uint64_t now_ns) {
  AddLate(now_ns);
  if (const TryLock lock{&is_recording_}) {
    ReleaseHeld(UnconfirmedTimes::kCapacity);
    DropHeld();
    if (completes_unfollowed) CompleteUnfollowed(LoadAcquire(unfollowed_until_), now_ns);
  }
}

}  // namespace nccl_exporter::plugin
