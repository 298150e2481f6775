// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_windows.h"

#include <algorithm>

#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

TimeWindows NetworkWindows::OfShare(uint32_t share_ppm, uint64_t period_ns) {
  const bool is_whole = share_ppm == kWholeDutyPpm;
  return {.period_ns = period_ns,
          .window_ns = is_whole ? period_ns : period_ns / kWholeDutyPpm * share_ppm};
}

void NetworkWindows::Open(int* mask, int own_mask, const TimeWindows& windows) {
  own_mask_.store(own_mask, std::memory_order_relaxed);
  StoreRelaxed(period_ns_, windows.period_ns);
  StoreRelaxed(window_ns_, windows.window_ns);
  const bool is_always_open = windows.window_ns >= windows.period_ns;
  is_open_.store(is_always_open, std::memory_order_relaxed);
  is_held_.store(false, std::memory_order_relaxed);
  StoreRelaxed(open_until_ns_, 0);
  StoreRelaxed(next_change_ns_, is_always_open ? kNever : 0);
  mask_.store(mask, std::memory_order_release);
}

void NetworkWindows::Close() {
  StoreRelaxed(next_change_ns_, kNever);
  is_open_.store(false, std::memory_order_relaxed);
  is_held_.store(false, std::memory_order_relaxed);
  StoreBit();
  mask_.store(&idle_mask_, std::memory_order_relaxed);
}

uint32_t NetworkWindows::SharePpm() const {
  const TimeWindows windows = Windows();
  return static_cast<uint32_t>(static_cast<double>(windows.window_ns) /
                                   static_cast<double>(windows.period_ns) * kWholeDutyPpm +
                               0.5);
}

void NetworkWindows::StoreBit() {
  int* const mask = mask_.load(std::memory_order_acquire);
  const int bit = IsOpen() || IsHeld() ? kStepBit : 0;
  int present = __atomic_load_n(mask, __ATOMIC_ACQUIRE);
  for (int i = 0; i < kAttempts; ++i) {
    const int others = present & ~kStepBit;
    if (others != own_mask_.load(std::memory_order_relaxed)) return;
    if (__atomic_compare_exchange_n(mask, &present, others | bit, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return;
  }
}

void NetworkWindows::Hold() {
  is_held_.store(true, std::memory_order_relaxed);
  StoreBit();
}

WindowPhase NetworkWindows::PhaseOf(uint64_t realtime_ns) const {
  const uint64_t open_until_ns = LoadRelaxed(open_until_ns_);
  if (realtime_ns < open_until_ns) return {true, open_until_ns};
  return PhaseAt(Windows(), realtime_ns);
}

void NetworkWindows::Change(uint64_t now_ns) {
  if (is_changing_.exchange(true, std::memory_order_acquire)) return;  // another thread is at it
  const uint64_t realtime_ns = ReadClock(CLOCK_REALTIME);
  const WindowPhase phase = PhaseOf(realtime_ns);
  is_open_.store(phase.is_open, std::memory_order_relaxed);
  is_held_.store(false, std::memory_order_relaxed);
  StoreBit();
  StoreRelaxed(next_change_ns_,
               now_ns + std::min(phase.edge_ns - realtime_ns, LoadRelaxed(period_ns_)));
  is_changing_.store(false, std::memory_order_release);
}

}  // namespace nccl_exporter::plugin
