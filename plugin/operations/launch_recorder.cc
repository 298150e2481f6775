// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/launch_recorder.h"

namespace nccl_exporter::plugin {

void LaunchRecorder::Open(bool times_are_on_probation) {
  StoreRelaxed(unfollowed_until_, 0);
  for (AtomicU64& unfollowed : unfollowed_) StoreRelaxed(unfollowed, 0);
  judge_.Open(times_are_on_probation);
}

void LaunchRecorder::Record(Launch& launch, uint64_t now_ns) {
  if (now_ns == 0) now_ns = NowNs();
  RecordMembers(LoadRelaxed(launch.last_member), LoadRelaxed(launch.members), &launch, now_ns);
  StoreRelease(launch.ticket, 0);
}

void LaunchRecorder::RecordAlone(Operation& operation, uint64_t ticket, uint64_t now_ns) {
  StoreRelaxed(operation.previous_member, 0);
  RecordMembers(ticket, 1, nullptr, now_ns);
}

// Records all members of a launch, whose times depend on each other, and frees their entries.
[[gnu::flatten]] void LaunchRecorder::RecordMembers(uint64_t last_member, uint64_t members,
                                                    const Launch* launch, uint64_t now_ns) {
  // First: its locked instruction waits until all stores before it are visible.
  const TryLock lock{&is_recording_};
  LaunchRecord record(shared(), last_member, members, launch, now_ns);
  RecordUnder(lock, record);
  const uint64_t unfollowed_until = LoadAcquire(unfollowed_until_);
  if (unfollowed_until != 0 && last_member > unfollowed_until)
    CompleteUnfollowed(unfollowed_until, now_ns);
}

// Every member that has stopped and is not timed is counted once: by what is wrong with its own
// time stamps, with those of its launch, or else as an untimed member.
void LaunchRecorder::RecordUnder(const TryLock& lock, LaunchRecord& record) {
  record.Gather();
  if (const uint64_t good = record.CountGood(); good != 0)
    record.SetBelief(BeliefIn(lock, record, good));
  if (record.belief() == Belief::kNo && lock) judge_.EndPatience();
  if (lock && judge_.HoldsAny()) judge_.ReleaseHeld(UnconfirmedTimes::kReleaseSteps);
  uint64_t ticket = record.last_member();
  for (uint64_t i = 0; i < record.members() && ticket != 0; ++i) {
    Operation& operation = shared().At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kDone)) return;
    if (!operation.is_not_recorded.load(std::memory_order_relaxed))
      RecordMember(record, operation, ticket);
    shared().recorder().HideInFlight(ticket);
    const uint64_t previous = LoadRelaxed(operation.previous_member);
    StoreRelease(operation.state, PhaseWord(ticket, Phase::kFree));
    ticket = previous;
  }
}

// `good`: members with good time stamps, which are counted if they are not believed.
Belief LaunchRecorder::BeliefIn(const TryLock& lock, LaunchRecord& record, uint64_t good) {
  Recorder& recorder = shared().recorder();
  const uint64_t rejection = record.rejection();
  if (rejection != 0)
    return recorder.CountLosses(static_cast<Loss>(rejection - 1), good), Belief::kNo;
  if (!lock) return recorder.CountLosses(Loss::kConcurrentRecording, good), Belief::kNo;
  return shared().ReadsGpuClock() ? judge_.Judge(record, good) : Belief::kYes;
}

void LaunchRecorder::RecordMember(const LaunchRecord& record, const Operation& operation,
                                  uint64_t ticket) {
  if (record.IsTimed(operation, ticket)) {
    const Completion completion = record.TimesOf(operation);
    record.belief() == Belief::kLater ? judge_.Hold(record, completion)
                                      : shared().recorder().RecordTimes(completion);
  }
  const Function function = operation.function.load(std::memory_order_relaxed);
  shared().recorder().CountCompleted(function, record.now_ns());
}

void LaunchRecorder::CompleteUnfollowed(uint64_t until, uint64_t now_ns) {
  if (!CompareExchange(unfollowed_until_, until, 0)) return;
  for (size_t function = 0; function < kFunctionCount; ++function) {
    const uint64_t count = unfollowed_[function].exchange(0, std::memory_order_acq_rel);
    if (count != 0)
      shared().recorder().CountCompleted(static_cast<Function>(function), now_ns, count);
  }
}

void LaunchRecorder::Finalize(bool completes_unfollowed, uint64_t now_ns) {
  if (const TryLock lock{&is_recording_}) {
    judge_.ReleaseHeld(UnconfirmedTimes::kCapacity);
    judge_.Close();
    if (completes_unfollowed) CompleteUnfollowed(LoadAcquire(unfollowed_until_), now_ns);
  }
}

}  // namespace nccl_exporter::plugin
