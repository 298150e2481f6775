// SPDX-License-Identifier: Apache-2.0
#include "plugin/sampling/sampler.h"

#include <algorithm>

namespace nccl_exporter::plugin {
namespace {

// The finalizer of SplitMix64: every bit of the result depends on every bit of the number.
uint64_t Scramble(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

}  // namespace

// The window of a period may reach into the next one, so that all moments of a period are met
// alike.
WindowPhase PhaseAt(const SamplingWindows& windows, uint64_t realtime_ns) {
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

void Sampler::Open(int* mask, int timed_mask, const SamplingWindows& windows, uint64_t learning_ns,
                   uint64_t now_ns) {
  mask_.store(mask, std::memory_order_relaxed);
  timed_mask_ = timed_mask & ~kFrozenBit;
  untimed_mask_ = (timed_mask_ & ~kTimingBit) | kProxyBit;
  windows_ = windows;
  has_learned_.store(false, std::memory_order_relaxed);
  StoreRelaxed(changes_, 0);
  StoreRelaxed(open_until_ns_, 0);
  StoreRelaxed(next_change_ns_, now_ns + learning_ns);
  __atomic_store_n(mask, timed_mask_, __ATOMIC_RELEASE);
}

void Sampler::KeepMask() {
  if (IsOwn(LoadMask())) return;
  StoreRelaxed(next_change_ns_, kNever);
  __atomic_store_n(mask(), frozen_timed(), __ATOMIC_RELEASE);
}

SamplingState Sampler::state() const {
  if (IsFrozen()) return SamplingState::kFrozen;
  return has_learned_.load(std::memory_order_relaxed) ? SamplingState::kWindows
                                                      : SamplingState::kLearning;
}

uint32_t Sampler::DutyPpm() const {
  if (state() != SamplingState::kWindows) return TimesNow() ? kWholeDutyPpm : 0;
  return static_cast<uint32_t>(static_cast<double>(windows_.window_ns) /
                                   static_cast<double>(windows_.period_ns) * kWholeDutyPpm +
                               0.5);
}

bool Sampler::BeginChange() {
  const uint64_t changes = changes_.load(std::memory_order_relaxed);
  return changes % 2 == 0 && CompareExchange(changes_, changes, changes + 1);
}

// Replaces one value of the mask by another and leaves the network's bit. Returns what the mask was
// without this bit.
int Sampler::Replace(int from, int to) {
  int present = LoadMask();
  for (int i = 0; i < kAttempts && WithoutNetwork(present) == from; ++i) {
    if (__atomic_compare_exchange_n(mask(), &present, to | (present & kNetworkBit), false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return from;
  }
  return WithoutNetwork(present);
}

WindowPhase Sampler::PhaseOf(uint64_t realtime_ns) const {
  const uint64_t open_until_ns = LoadRelaxed(open_until_ns_);
  if (realtime_ns < open_until_ns) return {true, open_until_ns};
  return PhaseAt(windows_, realtime_ns);
}

bool Sampler::EndChange(bool is_any_group_open, const ClockReading& now) {
  bool has_ended_learning = false;
  if (is_any_group_open) {
    StoreRelaxed(next_change_ns_, now.monotonic_ns + kRetryNs);
  } else {
    const WindowPhase phase = PhaseOf(now.realtime_ns);
    const int present =
        phase.is_open ? Replace(untimed_mask_, timed_mask_) : Replace(timed_mask_, untimed_mask_);
    has_ended_learning = !has_learned_.exchange(true, std::memory_order_relaxed);
    // What the word held: the value that was replaced, the wanted one, a frozen one, or somebody
    // else's.
    const bool goes_on = present == timed_mask_ || present == untimed_mask_;
    const uint64_t rest_ns = std::min(phase.edge_ns - now.realtime_ns, windows_.period_ns);
    StoreRelaxed(next_change_ns_, goes_on ? now.monotonic_ns + rest_ns : kNever);
  }
  changes_.fetch_add(1, std::memory_order_release);
  return has_ended_learning;
}

bool Sampler::Freeze(FreezingCall call, uint64_t changes_before) {
  int present = LoadMask();
  do {
    if (!IsOwn(present) || (present & kFrozenBit) != 0) return false;
  } while (!__atomic_compare_exchange_n(mask(), &present, present | kFrozenBit, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  const bool is_certain = changes_before % 2 == 0 && changes() == changes_before;
  if (!is_certain && call != FreezingCall::kOther) {
    const int frozen = call == FreezingCall::kSend ? frozen_timed() : frozen_untimed();
    __atomic_store_n(mask(), frozen | (present & kNetworkBit), __ATOMIC_RELEASE);
  }
  StoreRelaxed(next_change_ns_, kNever);
  return true;
}

}  // namespace nccl_exporter::plugin
