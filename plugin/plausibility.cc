// SPDX-License-Identifier: Apache-2.0
#include "plugin/plausibility.h"

#include <algorithm>

namespace nccl_exporter {
namespace {

// GPU clocks tick in steps of up to 1 us; clocks drift from each other, and NTP slews, by far less than a part in a
// thousand.
constexpr int64_t kSlackNs = 4096;
constexpr int64_t kDriftDivisor = 1024;

constexpr int64_t kUnknown = INT64_MIN / 2;

int64_t Signed(const Word& word) { return static_cast<int64_t>(LoadRelaxed(word)); }
void Store(Word& word, int64_t value) { StoreRelaxed(word, static_cast<uint64_t>(value)); }

}  // namespace

void Plausibility::Reset() {
  StoreRelaxed(bounds_ns_, 0);
  StoreRelaxed(last_ticket_, 0);
  StoreRelaxed(overrun_is_possible_until_, 0);
  StoreRelaxed(refused_until_, 0);
}

std::optional<Loss> Plausibility::Judge(const LaunchTimes& launch) {
  std::optional<Loss> verdict = JudgeClocks(launch);
  if (!verdict) verdict = JudgeOrder(launch);
  return verdict;
}

std::optional<Loss> Plausibility::JudgeClocks(const LaunchTimes& launch) {
  if (launch.stop_ns <= launch.start_ns) return Loss::kStopBeforeStart;
  const int64_t gpu_ns = static_cast<int64_t>(launch.stop_ns - launch.start_ns);
  const int64_t cpu_ns = static_cast<int64_t>(launch.delivered_ns - launch.call_ns);
  const bool knows_call = launch.call_ns != 0;
  if (knows_call && gpu_ns > cpu_ns + cpu_ns / kDriftDivisor + kSlackNs) return Loss::kLongerThanCpuTime;

  const int64_t least = knows_call ? static_cast<int64_t>(launch.call_ns - launch.start_ns) : kUnknown;
  const int64_t most = static_cast<int64_t>(launch.delivered_ns - launch.stop_ns);
  const uint64_t bounds_ns = LoadRelaxed(bounds_ns_);
  if (bounds_ns == 0) {
    Store(least_distance_, least);
    Store(most_distance_, most);
    StoreRelaxed(bounds_ns_, launch.delivered_ns);
    return std::nullopt;
  }
  const int64_t age_ns = launch.delivered_ns > bounds_ns ? static_cast<int64_t>(launch.delivered_ns - bounds_ns) : 0;
  const int64_t widened_ns = age_ns / kDriftDivisor;
  const int64_t known_least = Signed(least_distance_) - widened_ns;
  const int64_t known_most = Signed(most_distance_) + widened_ns;
  if (least > known_most + kSlackNs || most < known_least - kSlackNs) return Loss::kClockMismatch;
  Store(least_distance_, std::max(known_least, least));
  Store(most_distance_, std::min(known_most, most));
  StoreRelaxed(bounds_ns_, launch.delivered_ns);
  return std::nullopt;
}

// Kernels of a communicator run one after the other. A launch may be recorded late, because it waited for events that
// did not come.
bool Plausibility::Overlaps(const LaunchTimes& launch, bool is_late) const {
  if (launch.start_ns < launch.earlier_ns) return true;
  if (LoadRelaxed(last_ticket_) == 0) return false;
  return is_late ? launch.stop_ns > LoadRelaxed(last_start_ns_) : launch.start_ns < LoadRelaxed(last_stop_ns_);
}

std::optional<Loss> Plausibility::JudgeOrder(const LaunchTimes& launch) {
  const bool is_late = launch.last_ticket < LoadRelaxed(last_ticket_);
  const bool overlaps = Overlaps(launch, is_late);
  if (!is_late) {
    StoreRelaxed(last_ticket_, launch.last_ticket);
    StoreRelaxed(last_start_ns_, launch.start_ns);
    StoreRelaxed(last_stop_ns_, launch.stop_ns);
  }
  if (MayBeOverrun(launch)) StoreRelaxed(overrun_is_possible_until_, launch.newest_ticket);
  if (overlaps || launch.has_disjoint_channels) {
    if (launch.first_ticket > LoadRelaxed(overrun_is_possible_until_)) {
      return overlaps ? Loss::kOverlap : Loss::kDisjointChannels;
    }
    StoreRelaxed(refused_until_, launch.newest_ticket);
  }
  return launch.first_ticket <= LoadRelaxed(refused_until_) ? std::optional(Loss::kRingOverrun) : std::nullopt;
}

}  // namespace nccl_exporter
