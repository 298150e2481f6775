// SPDX-License-Identifier: Apache-2.0
// Windows of wall-clock time: one in every period, its place in the period drawn from the period's
// number, so that no periodic workload keeps meeting or missing it. The same on every rank of the
// cluster. A pure function, for any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace nccl_exporter::plugin {

struct TimeWindows {
  uint64_t period_ns = 2'000'000'000;
  uint64_t window_ns = 200'000'000;  // at most the period
};

struct WindowPhase {
  bool is_open = false;
  uint64_t edge_ns = 0;  // CLOCK_REALTIME at which that may change
};

// The finalizer of SplitMix64: every bit of the result depends on every bit of the number.
constexpr uint64_t Scramble(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// At that time of CLOCK_REALTIME. The window of a period may reach into the next one, so that all
// moments of a period are met alike.
constexpr WindowPhase PhaseAt(const TimeWindows& windows, uint64_t realtime_ns) {
  const uint64_t period = realtime_ns / windows.period_ns;
  const auto opening = [&](uint64_t number) {
    return number * windows.period_ns + Scramble(number) % windows.period_ns;
  };
  const uint64_t next_period_ns = (period + 1) * windows.period_ns;
  const uint64_t opens_ns = opening(period);
  const uint64_t former_ends_ns = period == 0 ? 0 : opening(period - 1) + windows.window_ns;
  const uint64_t ends_ns = opens_ns + windows.window_ns;
  if (realtime_ns < former_ends_ns) return {true, former_ends_ns};
  if (realtime_ns < opens_ns) return {false, opens_ns};
  if (realtime_ns < ends_ns) return {true, std::min(ends_ns, next_period_ns)};
  return {false, next_period_ns};
}

}  // namespace nccl_exporter::plugin
