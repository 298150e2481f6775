// SPDX-License-Identifier: Apache-2.0
// How far the clocks of a communicator's GPUs are apart at most, as its collectives tell: no rank leaves an operation
// that waits for all before every rank has entered it. This binds them closely where calls do not, since the host is
// far ahead of its GPU: the shortest operation counts, and bounds loosen with their age.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/gpu_clock_bounds.h"

namespace nccl_exporter {

// Not thread-safe. A clock's offset is what must be added to what it shows, so that the times of all can be compared.
class ClockDifferences {
 public:
  static constexpr int64_t kUnknown = int64_t{1} << 61;
  // The stop may be written by a thread that is ahead of the others of its kernel, and clocks tick in steps.
  static constexpr int64_t kSlackNs = 2 * GpuClockBounds::kTickNs;

  // Forgets everything; the clocks are numbered from 0.
  void Reset(size_t clocks) {
    clocks_ = clocks;
    bounds_.assign(clocks * clocks, {});
  }

  // A rank by clock `entered` entered an operation that one by clock `left` had left no sooner.
  void Learn(size_t entered, uint64_t start_ns, size_t left, uint64_t stop_ns, int64_t as_of_ns) {
    Bound& bound = At(left, entered);
    const Bound told{.least_ns = Difference(start_ns, stop_ns) - kSlackNs, .as_of_ns = as_of_ns};
    const int64_t latest_ns = std::max(bound.as_of_ns, as_of_ns);
    bound = {.least_ns = std::max(bound.LeastAt(latest_ns), told.LeastAt(latest_ns)), .as_of_ns = latest_ns};
    // Where both directions contradict each other, a clock was set, or operations were taken for the same that are not.
    Bound& opposite = At(entered, left);
    if (bound.LeastAt(latest_ns) + opposite.LeastAt(latest_ns) <= 0) return;
    bound = told;
    opposite = {};
  }

  // The offset of `one` is greater than that of `other` by at least this, at that time; -kUnknown if nothing is known.
  int64_t LeastOf(size_t one, size_t other, int64_t as_of_ns) const {
    return bounds_[one * clocks_ + other].LeastAt(as_of_ns);
  }

  // One time less another, of any clocks, within +-kUnknown.
  static int64_t Difference(uint64_t one_ns, uint64_t other_ns) {
    return std::clamp(static_cast<int64_t>(one_ns - other_ns), -kUnknown, kUnknown);
  }

 private:
  struct Bound {
    int64_t least_ns = -kUnknown;
    int64_t as_of_ns = 0;

    int64_t LeastAt(int64_t then_ns) const {
      if (least_ns == -kUnknown) return least_ns;
      const int64_t age_ns = std::clamp(then_ns - as_of_ns, -kUnknown, kUnknown);
      return std::max(least_ns - std::max(age_ns, -age_ns) / GpuClockBounds::kDriftDivisor, -kUnknown);
    }
  };

  Bound& At(size_t one, size_t other) { return bounds_[one * clocks_ + other]; }

  size_t clocks_ = 0;
  std::vector<Bound> bounds_;
};

}  // namespace nccl_exporter
