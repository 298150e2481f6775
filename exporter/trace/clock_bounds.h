// SPDX-License-Identifier: Apache-2.0
// ClockBounds, bounds of what must be added to the times of clocks, by window of time; they become
// wider with the time from the middle of a window, as the clocks drift. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "collector/trace/node_trace.h"

namespace nccl_exporter::exporter {

// As collector/arrivals assumes: crystals of 100 parts in a million each, whose rate changes by
// this much in this time.
inline constexpr double kMostDrift = 200e-6;
inline constexpr double kRateChange = 1e-6;
inline constexpr int64_t kSteadyNs = 64'000'000'000;

// A bound becomes wider by 1 us in half of it. A longer trace has longer windows, at most
// kMostWindows for each clock.
inline constexpr int64_t kLeastWindowNs = 10'000'000;
inline constexpr int64_t kMostWindows = 4096;
// Limit for all clocks together: 16 MiB. A user can forge a clock for each communicator.
inline constexpr int64_t kMostWindowsOfAll = int64_t{1} << 20;

// In nanoseconds; the limits where nothing is known.
struct OffsetBounds {
  int64_t least_ns = -collector::kMostTraceNs;
  int64_t most_ns = collector::kMostTraceNs;

  bool is_known() const {
    return least_ns > -collector::kMostTraceNs / 2 && most_ns < collector::kMostTraceNs / 2;
  }
  int64_t Middle() const { return least_ns + (most_ns - least_ns) / 2; }
  int64_t Uncertainty() const { return (most_ns - least_ns + 1) / 2; }
};

inline int64_t Clamped(int64_t ns) {
  return std::clamp(ns, -collector::kMostTraceNs, collector::kMostTraceNs);
}
inline bool IsKnown(int64_t bound_ns) { return std::abs(bound_ns) < collector::kMostTraceNs; }

// Bounds of one clock. Times are its own.
struct ClockWindows {
  int64_t origin_ns = 0;
  int64_t length_ns = kLeastWindowNs;
  // Rate of the offset's growth, at least and at most.
  double least_rate = -kMostDrift, most_rate = kMostDrift;
  std::vector<OffsetBounds> bounds;  // in the middle of each window

  OffsetBounds At(int64_t time_ns) const;
  // The offset is this all the time.
  void Fix(int64_t offset_ns);
  // Takes over bounds of a moment. Whether anything changed.
  bool Narrow(const OffsetBounds& at, int64_t time_ns);
  // False if the bounds contradict each other.
  bool IsSoundAt(int64_t time_ns) const;
  // Carries bounds from window to window, both ways. False if they contradict each other.
  bool Drift(bool& changes);
  // Bounds the rates by pairs of windows. False if these contradict each other.
  bool BoundRate();

 private:
  size_t IndexOf(int64_t time_ns) const;
  int64_t MiddleOf(size_t index) const {
    return origin_ns + static_cast<int64_t>(index) * length_ns + length_ns / 2;
  }
  // Bounds of a moment, moved by `later_ns`; negative: to an earlier one. Each side for itself.
  OffsetBounds Later(const OffsetBounds& then, int64_t later_ns) const;
};

using ClockBounds = std::vector<ClockWindows>;  // by clock, all against one of them

}  // namespace nccl_exporter::exporter
