// SPDX-License-Identifier: Apache-2.0
// Where a GPU's clock stands against CLOCK_MONOTONIC, as far as operations tell: a kernel cannot start before it was
// called, and its end is delivered no sooner than it came. Each operation bounds the distance of the two clocks from
// both sides; the closest bounds count, and loosen with their age.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace nccl_exporter {

// A point in time that lies between these, CLOCK_MONOTONIC.
struct TimeRange {
  int64_t least_ns = 0;
  int64_t most_ns = 0;

  int64_t Middle() const { return least_ns + (most_ns - least_ns) / 2; }
};

// Not thread-safe. Takes any numbers: those that make no sense give ranges that make none, without harm.
class GpuClockBounds {
 public:
  // The steps in which a GPU's clock may tick: 1024 ns on some (A100), 32 ns on others.
  static constexpr int64_t kTickNs = 1024;
  // How fast two clocks drift apart at most: a crystal's 100 parts in a million, and a clock that is being slewed to an
  // NTP server's by as much again.
  static constexpr int64_t kDriftDivisor = 5000;

  // By the GPU's clock an operation ran from `start_ns` to `stop_ns`; by CLOCK_MONOTONIC it was called at or after
  // `called_ns` (nothing if that is not known) and its end delivered at `delivered_ns`. Bounds that contradict the
  // former ones (the GPU's clock was set) replace them.
  void Learn(std::optional<uint64_t> called_ns, uint64_t start_ns, uint64_t stop_ns, uint64_t delivered_ns) {
    const Bounds told{.least_ns = called_ns ? Distance(*called_ns, start_ns) - kTickNs : kUnknown,
                      .most_ns = Distance(delivered_ns, stop_ns),
                      .as_of_ns = Clamped(delivered_ns)};
    if (!bounds_) {
      bounds_ = told;
      return;
    }
    const int64_t as_of_ns = std::max(bounds_->as_of_ns, told.as_of_ns);
    const Bounds former = bounds_->At(as_of_ns), latest = told.At(as_of_ns);
    bounds_ = {.least_ns = std::max(former.least_ns, latest.least_ns),
               .most_ns = std::min(former.most_ns, latest.most_ns),
               .as_of_ns = as_of_ns};
    if (bounds_->least_ns > bounds_->most_ns) bounds_ = told;
  }

  // When the GPU's clock showed `gpu_ns`, which was about `about_ns`. Nothing if it is not bound from both sides.
  std::optional<TimeRange> RangeOf(uint64_t gpu_ns, uint64_t about_ns) const {
    if (!bounds_ || bounds_->least_ns == kUnknown) return std::nullopt;
    const Bounds then = bounds_->At(Clamped(about_ns));
    return TimeRange{Clamped(gpu_ns + static_cast<uint64_t>(then.least_ns)),
                     Clamped(gpu_ns + static_cast<uint64_t>(then.most_ns + kTickNs))};
  }

 private:
  static constexpr int64_t kGreatest = (int64_t{1} << 62) - 1;  // so that differences are no overflow; 146 years
  static constexpr int64_t kUnknown = -kGreatest;

  // CLOCK_MONOTONIC minus the GPU's clock.
  struct Bounds {
    int64_t least_ns;
    int64_t most_ns;
    int64_t as_of_ns;

    Bounds At(int64_t then_ns) const {
      const int64_t loosened_ns = std::max(then_ns - as_of_ns, as_of_ns - then_ns) / kDriftDivisor;
      return {.least_ns = std::max(least_ns - loosened_ns, kUnknown),
              .most_ns = std::min(most_ns + loosened_ns, kGreatest),
              .as_of_ns = then_ns};
    }
  };

  static int64_t Clamped(uint64_t ns) { return std::clamp(static_cast<int64_t>(ns), kUnknown, kGreatest); }
  static int64_t Distance(uint64_t cpu_ns, uint64_t gpu_ns) { return Clamped(cpu_ns - gpu_ns); }

  std::optional<Bounds> bounds_;
};

}  // namespace nccl_exporter
