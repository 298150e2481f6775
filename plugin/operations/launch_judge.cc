// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/launch_judge.h"

#include <algorithm>

namespace nccl_exporter {

void LaunchJudge::Open(bool times_are_on_probation) {
  is_contradicted_.store(false, std::memory_order_relaxed);
  dates_starts_.store(false, std::memory_order_relaxed);
  probation_left_.store(times_are_on_probation ? kProbationLaunches : 0, std::memory_order_relaxed);
  plausibility_.Reset();
  held_times_.Clear();
  state_.recorder().ShowProbation(probation_left_.load(std::memory_order_relaxed));
}

Belief LaunchJudge::Judge(LaunchRecord& record, uint64_t good) {
  LaunchTimes& times = record.times();
  times.overwritable_ns = state_.work_items().OverwritableSince(times.first_item);
  times.earlier_ns = EarlierInFlightNs(times.first_ticket);
  const Verdict verdict = Compare(times);
  if (verdict.refutes_held) DropHeld(Loss::kRingOverrun);
  if (verdict.loss) {
    state_.recorder().CountLosses(*verdict.loss, good);
    if (Plausibility::IsDrift(*verdict.loss)) BeginContradiction();
    return Belief::kNo;
  }
  dates_starts_.store(!verdict.is_own, std::memory_order_relaxed);  // for patience, which counts only then
  const uint64_t uncompared = LoadRelaxed(state_.uncompared_items());
  record.SetUncomparedBefore(uncompared + 1 - times.items);
  if (verdict.is_own) AdvanceProbation();
  if (IsOnProbation()) return Belief::kLater;
  if (!held_times_.IsEmpty()) held_times_.Believe(verdict.release_until, uncompared);
  return verdict.is_own ? Belief::kYes : Belief::kLater;
}

Verdict LaunchJudge::Compare(const LaunchTimes& launch) {
  if (is_contradicted_.load(std::memory_order_relaxed)) return {.loss = Loss::kDrift};
  const uint64_t before = plausibility_.last_ticket();
  const Verdict verdict = plausibility_.Judge(launch);
  // In their place among the launches that are compared: those that lie between these two, and were not followed, not
  // timed, or are not over yet.
  if (plausibility_.last_ticket() != before && launch.first_ticket > before) {
    const uint64_t uncompared = launch.first_ticket - before - 1 + launch.incomplete;
    if (uncompared != 0) AddRelaxed(state_.uncompared_items(), uncompared);
  }
  return verdict;
}

void LaunchJudge::BeginContradiction() {
  is_contradicted_.store(true, std::memory_order_relaxed);
  DropHeld(Loss::kDrift);
  state_.BeginDrift(0, DriftCause::kContradiction);
}

void LaunchJudge::AdvanceProbation() {
  const uint32_t left = probation_left_.load(std::memory_order_relaxed);
  if (left == 0) return;
  probation_left_.store(left - 1, std::memory_order_relaxed);
  state_.recorder().ShowProbation(left - 1);
}

// Until when operations announced before that one, and not over yet, ran at least, by times that are their own; 0 if
// there are none. Only as many as may be in flight by their channels' being reported independently of each other: the
// others have been recorded.
uint64_t LaunchJudge::EarlierInFlightNs(uint64_t ticket) {
  constexpr uint64_t kMostSteps = 16;
  const uint64_t oldest = std::max(LoadRelaxed(state_.oldest()), ticket - std::min(ticket, kMostSteps));
  uint64_t latest_ns = 0;
  while (ticket-- > oldest) {
    const Operation& operation = state_.At(ticket);
    if (LoadAcquire(operation.state) != PhaseWord(ticket, Phase::kActive)) continue;
    if (LoadRelaxed(operation.parts_ticket) != ticket || LoadRelaxed(operation.seen) == 0) continue;
    const uint64_t until_ns = std::max(LoadRelaxed(operation.first_start_ns), LoadRelaxed(operation.last_stop_ns));
    const uint32_t first_item = operation.first_item.load(std::memory_order_relaxed);
    if (!plausibility_.AreOwn(until_ns, state_.work_items().OverwritableSince(first_item))) continue;
    latest_ns = std::max(latest_ns, until_ns);
  }
  return latest_ns;
}

void LaunchJudge::Hold(const LaunchRecord& record, const Completion& completion) {
  const uint64_t dropped = held_times_.MakeRoom(state_.recorder());
  if (dropped != 0) state_.recorder().CountLosses(CauseOfDoubt(), dropped);
  held_times_.Keep(record.last_member(), completion, record.uncompared_before());
}

void LaunchJudge::ReleaseHeld(uint64_t most) {
  const uint64_t dropped = held_times_.Release(state_.recorder(), most);
  if (dropped != 0) state_.recorder().CountLosses(Loss::kRingOverrun, dropped);
}

}  // namespace nccl_exporter
