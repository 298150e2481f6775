// SPDX-License-Identifier: Apache-2.0
// Judgement of the time stamps of launches: whether they are recorded at once, held until later ones agree, or dropped.
// One thread at a time, under the lock of the communicator's completions, but for DatesStarts().
//
// plausibility.h has the argument for one launch behind the other; held_times.h keeps the times that wait.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/operations/communicator_state.h"
#include "plugin/operations/launch_record.h"
#include "plugin/timing/held_times.h"
#include "plugin/timing/plausibility.h"
#include "plugin/timing/work_items.h"

namespace nccl_exporter {

class LaunchJudge {
 public:
  // Launches whose times are shown to be their own, and agree with the CPU's interval, before those of a release that
  // is not known are believed: a whole ring, so that counts that differ by less than a ring have shown.
  static constexpr uint32_t kProbationLaunches = WorkItems::kRingEntries;

  explicit LaunchJudge(CommunicatorState& state) : state_(state) {}

  // Before the recorder of the state is opened for the next communicator: drops what the former one held.
  void Close() { DropHeld(CauseOfDoubt()); }
  void Open(bool times_are_on_probation);
  // As Open, and before it, for good: room for the phases of times that are held.
  void TakePhases(HeldTimes::Phases* room) { held_times_.SetRoomForPhases(room); }
  bool TakesPhases() const { return held_times_.HasRoomForPhases(); }

  // Of a launch with `good` members whose time stamps are good. They are counted as lost if they are not believed.
  Belief Judge(LaunchRecord& record, uint64_t good);
  // A launch is recorded whose times are not compared with others.
  void EndPatience() { plausibility_.EndPatience(); }

  // Keeps times back, those of the latest launch so far.
  void Hold(const LaunchRecord& record, const Completion& completion);
  bool HoldsAny() const { return !held_times_.IsEmpty(); }
  // Records held times that are believed by now, so many at most.
  void ReleaseHeld(uint64_t most);

  // Any thread. Whether the host is so far ahead that the pauses of NCCL's thread count.
  bool DatesStarts() const { return dates_starts_.load(std::memory_order_relaxed); }

 private:
  // With the launches before it; notes those in between.
  Verdict Compare(const LaunchTimes& launch);
  uint64_t EarlierInFlightNs(uint64_t ticket);
  [[gnu::cold]] void BeginContradiction();

  // Of a release that is not known.
  bool IsOnProbation() const { return probation_left_.load(std::memory_order_relaxed) != 0; }
  // A launch has shown that its times are its own, and agree with the CPU's interval.
  void AdvanceProbation();
  // Why times are dropped that were not shown to be their own.
  Loss CauseOfDoubt() const { return IsOnProbation() ? Loss::kUnproven : Loss::kRingOverrun; }
  void DropHeld(Loss loss) {
    if (const uint64_t dropped = held_times_.Drop(); dropped != 0) state_.recorder().CountLosses(loss, dropped);
  }

  CommunicatorState& state_;
  std::atomic<bool> is_contradicted_{false};  // so that what is still in flight is not believed either
  std::atomic<bool> dates_starts_{false};
  std::atomic<uint32_t> probation_left_{0};  // launches
  Plausibility plausibility_;
  HeldTimes held_times_;
};

}  // namespace nccl_exporter
