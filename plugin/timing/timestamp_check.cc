// SPDX-License-Identifier: Apache-2.0
#include "plugin/timing/timestamp_check.h"

#include <algorithm>

#include "plugin/timing/slew_watch.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int64_t kUnknown = INT64_MIN / 2;

}  // namespace

Verdict TimestampCheck::Judge(const LaunchTimes& launch) {
  Verdict verdict;
  verdict.loss = JudgeClocks(launch);
  if (verdict.loss) return verdict;
  verdict.is_own = AreOwn(launch.stop_ns, launch.overwritable_ns);
  launch.last_ticket < LoadRelaxed(last_ticket_) ? JudgeLate(launch, verdict)
                                                 : JudgeInOrder(launch, verdict);
  return verdict;
}

std::optional<Loss> TimestampCheck::JudgeClocks(const LaunchTimes& launch) {
  if (launch.stop_ns <= launch.start_ns) return Loss::kStopBeforeStart;
  const int64_t gpu_ns = static_cast<int64_t>(launch.stop_ns - launch.start_ns);
  const int64_t cpu_ns = static_cast<int64_t>(launch.delivered_ns - launch.call_ns);
  const bool knows_call = launch.call_ns != 0;
  if (knows_call && gpu_ns > cpu_ns + cpu_ns / kClockDriftDivisor + kClockSlackNs)
    return Loss::kLongerThanCpuTime;

  const int64_t least =
      knows_call ? static_cast<int64_t>(launch.call_ns - launch.start_ns) : kUnknown;
  const int64_t most = static_cast<int64_t>(launch.delivered_ns - launch.stop_ns);
  const uint64_t bounds_ns = LoadRelaxed(bounds_ns_);
  if (bounds_ns == 0) {
    StoreRelaxed(least_distance_, least);
    StoreRelaxed(most_distance_, most);
    StoreRelaxed(bounds_ns_, launch.delivered_ns);
    return std::nullopt;
  }
  const int64_t age_ns =
      launch.delivered_ns > bounds_ns ? static_cast<int64_t>(launch.delivered_ns - bounds_ns) : 0;
  const int64_t widened_ns = age_ns / kClockDriftDivisor;
  const int64_t known_least = LoadRelaxed(least_distance_) - widened_ns;
  const int64_t known_most = LoadRelaxed(most_distance_) + widened_ns;
  if (least > known_most + kClockSlackNs || most < known_least - kClockSlackNs)
    return Loss::kClockMismatch;
  StoreRelaxed(least_distance_, std::max(known_least, least));
  StoreRelaxed(most_distance_, std::min(known_most, most));
  StoreRelaxed(bounds_ns_, launch.delivered_ns);
  return std::nullopt;
}

bool TimestampCheck::AreOwn(uint64_t stop_ns, uint64_t overwritable_ns) const {
  if (overwritable_ns == WorkItems::kNotYet) return true;
  if (overwritable_ns == 0 || LoadRelaxed(bounds_ns_) == 0) return false;
  const int64_t latest_ns =
      static_cast<int64_t>(stop_ns) + LoadRelaxed(most_distance_) + kClockSlackNs;
  return latest_ns < static_cast<int64_t>(overwritable_ns);
}

// Kernels of a communicator run one after the other.
void TimestampCheck::JudgeInOrder(const LaunchTimes& launch, Verdict& verdict) {
  const bool goes_back = launch.start_ns < LoadRelaxed(last_stop_ns_);
  const bool last_is_own = LoadRelaxed(last_is_own_) != 0;
  NotePatience(launch, goes_back);
  StoreRelaxed(last_ticket_, launch.last_ticket);
  StoreRelaxed(last_start_ns_, launch.start_ns);
  StoreRelaxed(last_stop_ns_, launch.stop_ns);
  StoreRelaxed(last_is_own_, verdict.is_own ? 1 : 0);
  if ((goes_back && last_is_own) || launch.start_ns < launch.earlier_ns) {
    verdict.loss = Loss::kOverlap;
    return;
  }
  verdict.refutes_held = goes_back;
  if (launch.has_disjoint_channels) {
    verdict.loss = verdict.is_own ? Loss::kDisjointChannels : Loss::kRingOverrun;
    return;
  }
  verdict.release_until = verdict.is_own ? launch.last_ticket : FirstPatientLaunch();
}

// A launch may be recorded late, because it waited for events that did not come. It is not compared
// with those right before and behind it, so nothing but its own times is believed.
void TimestampCheck::JudgeLate(const LaunchTimes& launch, Verdict& verdict) const {
  if (!verdict.is_own) {
    verdict.loss = Loss::kRingOverrun;
  } else if (launch.stop_ns > LoadRelaxed(last_start_ns_) || launch.start_ns < launch.earlier_ns) {
    verdict.loss = Loss::kOverlap;
  } else if (launch.has_disjoint_channels) {
    verdict.loss = Loss::kDisjointChannels;
  }
}

void TimestampCheck::NotePatience(const LaunchTimes& launch, bool goes_back) {
  const uint64_t before_ns = LoadRelaxed(last_delivered_ns_);
  const int64_t latest_stop_ns = static_cast<int64_t>(launch.stop_ns) + LoadRelaxed(most_distance_);
  const bool was_seen_to_run = launch.started_ns != LaunchTimes::kNeverSeen &&
                               launch.delivered_ns >= launch.started_ns + kRunNs &&
                               latest_stop_ns > static_cast<int64_t>(launch.started_ns);
  const bool waited =
      before_ns != 0 && latest_stop_ns >= static_cast<int64_t>(before_ns + kPatienceNs);
  StoreRelaxed(last_delivered_ns_, launch.delivered_ns);
  const bool is_patient = was_seen_to_run && waited && !goes_back;
  const uint64_t number = is_patient ? LoadRelaxed(patient_launches_) + 1 : 0;
  StoreRelaxed(patient_launches_, number);
  StoreRelaxed(row_[number % kPatientLaunches], launch.last_ticket);
}

uint64_t TimestampCheck::FirstPatientLaunch() const {
  const uint64_t number = LoadRelaxed(patient_launches_);
  return number < kPatientLaunches ? 0 : LoadRelaxed(row_[(number + 1) % kPatientLaunches]);
}

}  // namespace nccl_exporter::plugin
