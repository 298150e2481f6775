// SPDX-License-Identifier: Apache-2.0
// StepCounter, the steps of a communicator: operations of its rarest regular collective and size.
// For one thread at a time.
//
// A collective and size is regular if it occurred at least once per longest step in each of two
// periods, one after the other. So neither the collectives of an initialization nor those of a
// checkpoint are taken for steps. The choice stays while it is regular and no other is rarer
// (kRarerBy), and while nothing is regular: steps of a job that paused are counted from its first
// operation on. The counter never decreases.
//
// A wait is counted for each regular collective and size by itself: it contains the transfer, so
// only ranks in the same operation are compared. It is the mean of the launch that takes longest in
// a step (step_places.h). At most kMostStepWaits kinds have one: those that moved the most bytes,
// which are the same on all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "exporter/ledger/book.h"
#include "exporter/ledger/ledger_times.h"
#include "exporter/ledger/operation_times.h"
#include "exporter/ledger/step_places.h"

namespace nccl_exporter::exporter {

class StepCounter {
 public:
  void Begin(const Moment& now) { period_start_ns_ = now.monotonic_ns; }

  // After all operations have seen the snapshot. `more` says how many came with it.
  // `recent` and `decay` as of StepPlaces::See().
  void Advance(TimesByOperation& operations, const std::map<OperationKind, uint64_t>& more,
               const std::vector<collector::RecentOperation>& recent, double decay,
               const Moment& now, const LedgerTimes& times);

  // Nothing before the first step; without `since_realtime_ns`.
  const std::optional<StepCounts>& counts() const { return counts_; }

 private:
  // Returns the steps of the two periods if they are the first ones: these were not counted.
  uint64_t EndPeriod(TimesByOperation& operations, int64_t period_ns, const LedgerTimes& times);
  // Chooses the collective of the steps. Whether the choice is new.
  bool Choose(const TimesByOperation& operations);
  void ChooseWaits(const TimesByOperation& operations);
  void LearnPlaces(const TimesByOperation& operations);
  void Count(uint64_t steps, const TimesByOperation& operations);

  int64_t period_start_ns_ = 0;
  int64_t last_period_ns_ = 0;  // 0: there was none
  OperationKind choice_;        // with counts_
  std::optional<StepCounts> counts_;
  StepPlaces places_;
};

}  // namespace nccl_exporter::exporter
