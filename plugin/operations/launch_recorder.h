// SPDX-License-Identifier: Apache-2.0
// Recorder of launches: once all members of a launch are done, counts them, records their times and
// frees their entries. Any thread; each launch is handed over by one thread, once.
//
// One thread at a time judges and records launches (`is_recording_`). A thread that does not get
// the lock, because its holder was interrupted, counts its members without their times, in `late_`.
// They are added to the segment by whichever gets the lock first: this thread, which tries again,
// the holder, which looks there after it has let go, or the next thread that records.
//
// Times of a launch are recorded at once, held until later ones agree, or dropped:
// timestamp_check.h has the argument for one launch behind the other; unconfirmed_times.h keeps the
// times that wait.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_record.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/recorder.h"
#include "plugin/timing/slew_watch.h"
#include "plugin/timing/timestamp_check.h"
#include "plugin/timing/unconfirmed_times.h"
#include "plugin/timing/work_items.h"

namespace nccl_exporter::plugin {

class LaunchRecorder : public CommunicatorState {
 public:
  // Launches whose times are shown to be their own, and agree with the CPU's interval, before those
  // of a release that is not known are believed: a whole ring, so that counts that differ by less
  // than a ring have shown.
  static constexpr uint32_t kProbationLaunches = WorkItems::kRingEntries;

  // Drops first what the former communicator held, if its finalize could not: another thread had
  // the lock.
  void Open(const CommunicatorSetup& setup);
  // Records what is held and believed, drops the rest. With `completes_unfollowed` those are over,
  // too.
  void Finalize(bool completes_unfollowed, uint64_t now_ns);

  // A launch that is closed and whose members are all done. `now_ns` 0: not read yet.
  void Record(Launch& launch, uint64_t now_ns);
  // Records all members of a launch, whose times depend on each other, and frees their entries.
  // `launch` nullptr: one operation that belongs to none.
  void RecordMembers(uint64_t last_member, uint64_t members, const Launch* launch, uint64_t now_ns);

  // An operation was started and is not followed: it is over when one with a higher ticket is. By
  // any thread. The ticket is only raised, for a thread that was interrupted has an old one. The
  // count comes before the ticket is read (acquire), and CompleteUnfollowed takes the ticket before
  // the counts: no count stays behind without a ticket (//tests/memory_order has the model).
  void NoteUnfollowed(Function function, uint64_t latest_ticket) {
    constexpr int kAttempts = 64;
    unfollowed_[static_cast<size_t>(function)].fetch_add(1, std::memory_order_acquire);
    uint64_t until = LoadRelaxed(unfollowed_until_);
    for (int i = 0; i < kAttempts && until < latest_ticket; ++i) {
      if (unfollowed_until_.compare_exchange_strong(until, latest_ticket, std::memory_order_release,
                                                    std::memory_order_relaxed))
        return;
    }
  }

  // Any thread. Whether the host is so far ahead that the pauses of NCCL's thread count.
  bool DatesStarts() const { return LoadRelaxed(dates_starts_); }

 private:
  friend class CommunicatorPeer;  // of the tests: a thread between two steps

  void RecordUnder(const TryLock& lock, LaunchRecord& record);
  Belief BeliefIn(const TryLock& lock, LaunchRecord& record, uint64_t good);
  void RecordMember(const TryLock& lock, const LaunchRecord& record, const Operation& operation,
                    uint64_t ticket);
  using Counts = std::array<AtomicU64, kFunctionCount>;
  // Under the lock.
  void AddCompleted(Counts& counts, uint64_t now_ns);
  [[gnu::cold]] void AddLate(uint64_t now_ns);
  // Completes the operations that could not be followed up to that ticket, if no later one was
  // noted meanwhile.
  [[gnu::cold]] void CompleteUnfollowed(uint64_t until, uint64_t now_ns);

  // Judgement of time stamps, under the lock.

  // Judges a launch with `good` members whose time stamps are good. They are counted as lost if
  // they are not believed.
  Belief Judge(LaunchRecord& record, uint64_t good);
  void Hold(const LaunchRecord& record, const Completion& completion);
  // Records held times that are believed by now, so many at most.
  void ReleaseHeld(uint64_t most);
  uint64_t EarlierInFlightNs(uint64_t ticket);
  [[gnu::cold]] void BeginContradiction();

  // The release is unknown, and its times have not yet agreed with the CPU's often enough.
  bool IsOnProbation() const { return LoadRelaxed(probation_left_) != 0; }
  // Why times are dropped that were not shown to be their own.
  Loss CauseOfDoubt() const { return IsOnProbation() ? Loss::kUnproven : Loss::kRingOverrun; }
  void DropHeld() { DropHeld(CauseOfDoubt()); }
  void DropHeld(Loss loss) {
    if (const uint64_t dropped = unconfirmed_times_.Drop(); dropped != 0)
      recorder().CountLosses(loss, dropped);
  }

  // So that what is still in flight is not believed either.
  std::atomic<bool> is_contradicted_{false};
  std::atomic<bool> dates_starts_{false};
  std::atomic<uint32_t> probation_left_{0};  // launches
  TimestampCheck timestamp_check_;
  SlewWatch slew_watch_;
  UnconfirmedTimes unconfirmed_times_;
  alignas(64) std::atomic<bool> is_recording_{false};
  // Ticket: no operation that could not be followed was started later; 0: there is none.
  AtomicU64 unfollowed_until_{0};
  Counts unfollowed_{};
  std::atomic<bool> has_late_{false};
  Counts late_{};
};

inline Belief LaunchRecorder::Judge(LaunchRecord& record, uint64_t good) {
  LaunchTimes& times = record.times;
  times.overwritable_ns = work_items().OverwritableSince(times.first_item);
  times.earlier_ns = EarlierInFlightNs(times.first_ticket);
  const uint64_t before = timestamp_check_.last_ticket();
  const bool is_slewed = slew_watch_.IsDue(times.delivered_ns) && slew_watch_.Look();
  if (is_slewed) timestamp_check_.ForgetBounds();
  const Verdict verdict =
      LoadRelaxed(is_contradicted_) ? Verdict{.loss = Loss::kDrift} : timestamp_check_.Judge(times);
  // Those between these two were not followed, not timed, or are not over yet.
  if (timestamp_check_.last_ticket() != before && times.first_ticket > before) {
    const uint64_t between = times.first_ticket - before - 1 + times.incomplete;
    if (between != 0) AddRelaxed(uncompared_items_, between);
  }
  if (verdict.refutes_held) DropHeld(Loss::kRingOverrun);
  if (verdict.loss) {
    recorder().CountLosses(*verdict.loss, good);
    if (TimestampCheck::IsOfClocks(*verdict.loss) && (is_slewed || slew_watch_.Look())) {
      timestamp_check_.ForgetBounds();
    } else if (TimestampCheck::IsDrift(*verdict.loss)) {
      BeginContradiction();
    }
    return Belief::kNo;
  }
  StoreRelaxed(dates_starts_, !verdict.is_own);  // for patience, which counts only then
  const uint64_t uncompared = LoadRelaxed(uncompared_items_);
  record.uncompared_before = uncompared + 1 - times.items;
  if (const uint32_t left = LoadRelaxed(probation_left_); left != 0 && verdict.is_own) {
    StoreRelaxed(probation_left_, left - 1);
    recorder().ShowProbation(left - 1);
  }
  if (IsOnProbation()) return Belief::kLater;
  if (!unconfirmed_times_.IsEmpty()) unconfirmed_times_.Believe(verdict.release_until, uncompared);
  return verdict.is_own ? Belief::kYes : Belief::kLater;
}

// Until when operations announced before that one, and not over yet, ran at least, by times that
// are their own; 0 if there are none. Those further back have been recorded.
inline uint64_t LaunchRecorder::EarlierInFlightNs(uint64_t ticket) {
  constexpr uint64_t kMostSteps = 16;
  const uint64_t first = std::max(LoadRelaxed(oldest_), ticket - std::min(ticket, kMostSteps));
  uint64_t latest_ns = 0;
  while (ticket-- > first) {
    const Operation& operation = At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) continue;
    if (LoadRelaxed(operation.parts_ticket) != ticket || LoadRelaxed(operation.seen) == 0) continue;
    const uint64_t until_ns =
        std::max(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns));
    const uint32_t first_item = LoadRelaxed(operation.first_item);
    if (!timestamp_check_.AreOwn(until_ns, work_items().OverwritableSince(first_item))) continue;
    latest_ns = std::max(latest_ns, until_ns);
  }
  return latest_ns;
}

}  // namespace nccl_exporter::plugin
