// SPDX-License-Identifier: Apache-2.0
// Where a GPU's clock stands against CLOCK_MONOTONIC, as far as operations prove it: a kernel
// cannot start before it was called, and its end is delivered no sooner than it came. Each
// operation bounds the distance of the two clocks from both sides; the closest bounds count, and
// loosen with their age (ClockDistance).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "collector/arrivals/clock_distance.h"

namespace nccl_exporter::collector {

// A point in time that lies between these, CLOCK_MONOTONIC.
struct TimeRange {
  int64_t least_ns = 0;
  int64_t most_ns = 0;

  int64_t Middle() const { return least_ns + (most_ns - least_ns) / 2; }
};

// Not thread-safe. Takes any numbers: those that make no sense give ranges that make none, without
// harm.
class GpuClockBounds {
 public:
  // The steps in which a GPU's clock may tick: 1024 ns on some (A100), 32 ns on others.
  static constexpr int64_t kTickNs = 1024;

  // By the GPU's clock an operation ran from `start_ns` to `stop_ns`; by CLOCK_MONOTONIC it was
  // called at or after `called_ns` (nothing if that is not known) and its end delivered at
  // `delivered_ns`. Bounds that contradict the former ones (the GPU's clock was set) replace them.
  void Learn(std::optional<uint64_t> called_ns, uint64_t start_ns, uint64_t stop_ns,
             uint64_t delivered_ns) {
    const int64_t stopped_ns = Clamped(delivered_ns);
    const int64_t started_ns =
        stopped_ns - std::clamp<int64_t>(Clamped(stop_ns - start_ns), 0, kGreatest / 2);
    distance_.LearnMost(Clamped(delivered_ns - stop_ns), stopped_ns);
    if (called_ns) distance_.LearnLeast(Clamped(*called_ns - start_ns) - kTickNs, started_ns);
  }

  // When the GPU's clock showed `gpu_ns`, which was about `about_ns`. Nothing if it is not bound
  // from both sides.
  std::optional<TimeRange> RangeOf(uint64_t gpu_ns, uint64_t about_ns) const {
    if (!distance_.HasLeast()) return std::nullopt;
    const int64_t then_ns = Clamped(about_ns);
    return TimeRange{Clamped(gpu_ns + static_cast<uint64_t>(distance_.LeastAt(then_ns))),
                     Clamped(gpu_ns + static_cast<uint64_t>(distance_.MostAt(then_ns) + kTickNs))};
  }

 private:
  static constexpr int64_t kGreatest = ClockDistance::kUnknown;

  static int64_t Clamped(uint64_t ns) {
    return std::clamp(static_cast<int64_t>(ns), -kGreatest, kGreatest);
  }

  ClockDistance distance_;  // CLOCK_MONOTONIC minus the GPU's clock
};

}  // namespace nccl_exporter::collector
