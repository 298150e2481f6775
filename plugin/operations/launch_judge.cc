// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/launch_judge.h"

namespace nccl_exporter::plugin {

void LaunchJudge::Open(bool times_are_on_probation) {
  is_contradicted_.store(false, std::memory_order_relaxed);
  dates_starts_.store(false, std::memory_order_relaxed);
  probation_left_.store(times_are_on_probation ? kProbationLaunches : 0, std::memory_order_relaxed);
  timestamp_check_.Reset();
  unconfirmed_times_.Clear();
  shared_.recorder().ShowProbation(probation_left_.load(std::memory_order_relaxed));
}

void LaunchJudge::BeginContradiction() {
  is_contradicted_.store(true, std::memory_order_relaxed);
  DropHeld(Loss::kDrift);
  shared_.BeginDrift(0, DriftCause::kContradiction);
}

void LaunchJudge::Hold(const LaunchRecord& record, const Completion& completion) {
  const uint64_t dropped = unconfirmed_times_.MakeRoom(shared_.recorder());
  if (dropped != 0) shared_.recorder().CountLosses(CauseOfDoubt(), dropped);
  unconfirmed_times_.Keep(record.last_member(), completion, record.uncompared_before());
}

void LaunchJudge::ReleaseHeld(uint64_t most) {
  const uint64_t dropped = unconfirmed_times_.Release(shared_.recorder(), most);
  if (dropped != 0) shared_.recorder().CountLosses(Loss::kRingOverrun, dropped);
}

}  // namespace nccl_exporter::plugin
