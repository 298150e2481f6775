// SPDX-License-Identifier: Apache-2.0
// Judgement of the time stamps of launches: whether they are recorded at once, held until later
// ones agree, or dropped. One thread at a time, under the lock of the communicator's completions,
// but for DatesStarts().
//
// timestamp_check.h has the argument for one launch behind the other; unconfirmed_times.h keeps the
// times that wait.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_record.h"
#include "plugin/timing/timestamp_check.h"
#include "plugin/timing/unconfirmed_times.h"
#include "plugin/timing/work_items.h"

namespace nccl_exporter::plugin {

class LaunchJudge : public CommunicatorState {
 public:
  // Launches whose times are shown to be their own, and agree with the CPU's interval, before those
  // of a release that is not known are believed: a whole ring, so that counts that differ by less
  // than a ring have shown.
  static constexpr uint32_t kProbationLaunches = WorkItems::kRingEntries;

  // Drops first what the former communicator held, if its finalize could not: another thread had
  // the lock.
  void Open(const CommunicatorSetup& setup);
  void DropHeld() { DropHeld(CauseOfDoubt()); }

  // Judges a launch with `good` members whose time stamps are good. They are counted as lost if
  // they are not believed.
  Belief Judge(LaunchRecord& record, uint64_t good);
  // A launch is recorded whose times are not compared with others.
  void EndPatience() { timestamp_check_.EndPatience(); }

  // Keeps times back, those of the latest launch so far.
  void Hold(const LaunchRecord& record, const Completion& completion);
  bool HoldsAny() const { return !unconfirmed_times_.IsEmpty(); }
  // Records held times that are believed by now, so many at most.
  void ReleaseHeld(uint64_t most);

  // Any thread. Whether the host is so far ahead that the pauses of NCCL's thread count.
  bool DatesStarts() const { return LoadRelaxed(dates_starts_); }

 private:
  // With the launches before it; notes those in between.
  Verdict Compare(const LaunchTimes& launch);
  uint64_t EarlierInFlightNs(uint64_t ticket);
  [[gnu::cold]] void BeginContradiction();

  // Whether the release is unknown, and its times have not yet agreed with the CPU's often enough.
  bool IsOnProbation() const { return LoadRelaxed(probation_left_) != 0; }
  // A launch has shown that its times are its own, and agree with the CPU's interval.
  void AdvanceProbation();
  // Why times are dropped that were not shown to be their own.
  Loss CauseOfDoubt() const { return IsOnProbation() ? Loss::kUnproven : Loss::kRingOverrun; }
  void DropHeld(Loss loss) {
    if (const uint64_t dropped = unconfirmed_times_.Drop(); dropped != 0)
      recorder().CountLosses(loss, dropped);
  }

  // So that what is still in flight is not believed either.
  std::atomic<bool> is_contradicted_{false};
  std::atomic<bool> dates_starts_{false};
  std::atomic<uint32_t> probation_left_{0};  // launches
  TimestampCheck timestamp_check_;
  UnconfirmedTimes unconfirmed_times_;
};

// Part of every completion, and inline as that is.

inline Belief LaunchJudge::Judge(LaunchRecord& record, uint64_t good) {
  LaunchTimes& times = record.times();
  times.overwritable_ns = work_items().OverwritableSince(times.first_item);
  times.earlier_ns = EarlierInFlightNs(times.first_ticket);
  const Verdict verdict = Compare(times);
  if (verdict.refutes_held) DropHeld(Loss::kRingOverrun);
  if (verdict.loss) {
    recorder().CountLosses(*verdict.loss, good);
    if (TimestampCheck::IsDrift(*verdict.loss)) BeginContradiction();
    return Belief::kNo;
  }
  StoreRelaxed(dates_starts_, !verdict.is_own);  // for patience, which counts only then
  const uint64_t uncompared = LoadRelaxed(uncompared_items());
  record.SetUncomparedBefore(uncompared + 1 - times.items);
  if (verdict.is_own) AdvanceProbation();
  if (IsOnProbation()) return Belief::kLater;
  if (!unconfirmed_times_.IsEmpty()) unconfirmed_times_.Believe(verdict.release_until, uncompared);
  return verdict.is_own ? Belief::kYes : Belief::kLater;
}

inline Verdict LaunchJudge::Compare(const LaunchTimes& launch) {
  if (LoadRelaxed(is_contradicted_)) return {.loss = Loss::kDrift};
  const uint64_t before = timestamp_check_.last_ticket();
  const Verdict verdict = timestamp_check_.Judge(launch);
  // In their place among the launches that are compared: those that lie between these two, and were
  // not followed, not timed, or are not over yet.
  if (timestamp_check_.last_ticket() != before && launch.first_ticket > before) {
    const uint64_t uncompared = launch.first_ticket - before - 1 + launch.incomplete;
    if (uncompared != 0) AddRelaxed(uncompared_items(), uncompared);
  }
  return verdict;
}

inline void LaunchJudge::AdvanceProbation() {
  const uint32_t left = LoadRelaxed(probation_left_);
  if (left == 0) return;
  StoreRelaxed(probation_left_, left - 1);
  recorder().ShowProbation(left - 1);
}

// Until when operations announced before that one, and not over yet, ran at least, by times that
// are their own; 0 if there are none. Only as many as may be in flight by their channels' being
// reported independently of each other: the others have been recorded.
inline uint64_t LaunchJudge::EarlierInFlightNs(uint64_t ticket) {
  constexpr uint64_t kMostSteps = 16;
  const uint64_t first = std::max(LoadRelaxed(oldest()), ticket - std::min(ticket, kMostSteps));
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
