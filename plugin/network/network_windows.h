// SPDX-License-Identifier: Apache-2.0
// Windows of wall-clock time in which the proxy operations of one copy of libnccl are timed, the
// same on every rank of the cluster, and the bit of NCCL's event mask that asks for their steps.
// Any thread.
//
// The bit is ProxyStep. Nothing in NCCL counts by it: it decides only which callbacks are made
// (2.30.7 plugin/profiler.cc ncclProfilerStartProxyOpEvent to
// ncclProfilerRecordProxyStepEventState). So it may change at any moment. An operation keeps the
// bit that it was called with, a captured graph that of its capture: replays outside of the windows
// are refused (NetworkTimer::Takes), and NCCL makes no further callback for them but the starts of
// their steps.
//
// A call that is captured between windows sets the bit until the next edge, so that its graph asks
// about its operations in every window to come (the first call of a capture has read the mask
// before). What is called without capture in this time is asked about, and refused.
//
// A window opens and closes at the first operation that is announced after its edge, and changes
// what NCCL asks about from the next call on. So the share of operations that are timed is that of
// the windows, however long the time between two operations is.
//
// The mask is changed by compare-and-swap, and only where all its other bits are those that this
// plugin stores: a mask of NCCL's RAS client stays as it is. A chained plugin has bits there too,
// and may keep this one set.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "plugin/segment/atomics.h"
#include "proto/timing_source.h"

namespace nccl_exporter::plugin {

// Windows: one in every period, its place in the period drawn from the period's number, so that no
// periodic workload keeps meeting or missing it.
struct TimeWindows {
  uint64_t period_ns = 0;
  uint32_t share_ppm = 0;  // of the period that the window has, in millionths

  constexpr uint64_t window_ns() const { return period_ns * share_ppm / kWholeDutyPpm; }
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
  const uint64_t former_ends_ns = period == 0 ? 0 : opening(period - 1) + windows.window_ns();
  const uint64_t ends_ns = opens_ns + windows.window_ns();
  if (realtime_ns < former_ends_ns) return {true, former_ends_ns};
  if (realtime_ns < opens_ns) return {false, opens_ns};
  if (realtime_ns < ends_ns) return {true, std::min(ends_ns, next_period_ns)};
  return {false, next_period_ns};
}

// All zeros is its first state: not in use, and closed.
class NetworkWindows {
 public:
  // Under the process's lock.

  // The first communicator of the copy of libnccl. `own_mask`: what this plugin stores there, but
  // for the bits that it shares. `wish`: mask of a chained plugin, or nullptr. A window as long as
  // the period is always open.
  void Open(int* mask, int own_mask, int shared_bits, const int* wish, const TimeWindows& windows);
  void Close();
  bool Serves(const int* mask) const { return LoadRelaxed(mask_) == mask; }
  bool IsInUse() const { return communicators_ != 0; }
  void Join() { ++communicators_; }
  // The last one closes: the copy may be unloaded.
  void Leave() {
    if (communicators_ != 0 && --communicators_ == 0) Close();
  }
  // After an init has stored the mask.
  void StoreBit();

  // Any thread, at any time.

  bool IsOpen() const { return LoadRelaxed(is_open_); }
  // An operation is announced at this time (CLOCK_MONOTONIC): opens or closes a window that is due.
  void Note(uint64_t now_ns) {
    if (now_ns >= LoadRelaxed(next_change_ns_)) Change(now_ns);
  }
  // A call is being captured.
  void NoteCapture() {
    if (!IsHeld()) Hold();
  }
  // The bit is set, whether a window is open or not.
  bool IsHeld() const { return LoadRelaxed(is_held_); }
  // Whether NCCL reports the steps of an operation that is called now.
  bool AsksForSteps() const {
    return (__atomic_load_n(LoadRelaxed(mask_), __ATOMIC_RELAXED) & kStepBit) != 0;
  }
  // Share of time in which operations are timed, in millionths.
  uint32_t SharePpm() const { return LoadRelaxed(share_ppm_); }

 private:
  static constexpr int kStepBit = 16;  // ProxyStep
  static constexpr uint64_t kNever = ~uint64_t{0};
  // Each fails only if another thread has changed the mask.
  static constexpr int kAttempts = 4;

  [[gnu::cold]] void Change(uint64_t now_ns);
  [[gnu::cold]] void Hold();

  std::atomic<int*> mask_;
  int idle_mask_;  // mask of threads that come late
  std::atomic<int> own_mask_;
  std::atomic<int> shared_bits_;
  std::atomic<const int*> wish_;
  AtomicU64 period_ns_;
  std::atomic<uint32_t> share_ppm_;
  uint32_t communicators_;  // that are not finalized; under the lock
  AtomicU64 next_change_ns_;
  std::atomic<bool> is_changing_;
  std::atomic<bool> is_open_;
  std::atomic<bool> is_held_;
};

}  // namespace nccl_exporter::plugin
