// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_windows.h"

namespace nccl_exporter::plugin {

void NetworkWindows::Open(int* mask, int own_mask, int shared_bits, const int* wish,
                          const TimeWindows& windows) {
  StoreRelaxed(own_mask_, own_mask);
  StoreRelaxed(shared_bits_, shared_bits);
  StoreRelaxed(wish_, wish);
  StoreRelaxed(period_ns_, windows.period_ns);
  StoreRelaxed(share_ppm_, windows.share_ppm);
  const bool is_always_open = windows.share_ppm == kWholeDutyPpm;
  StoreRelaxed(is_open_, is_always_open);
  StoreRelaxed(is_held_, false);
  StoreRelaxed(next_change_ns_, is_always_open ? kNever : 0);
  StoreRelease(mask_, mask);
}

void NetworkWindows::Close() {
  StoreRelaxed(next_change_ns_, kNever);
  Zero(is_open_, is_held_);
  StoreBit();
  StoreRelaxed(mask_, &idle_mask_);
}

void NetworkWindows::StoreBit() {
  int* const mask = LoadAcquire(mask_);
  const int* const wish = LoadRelaxed(wish_);
  const int wished = wish != nullptr ? __atomic_load_n(wish, __ATOMIC_RELAXED) & kStepBit : 0;
  const int bit = IsOpen() || IsHeld() ? kStepBit : wished;
  int present = __atomic_load_n(mask, __ATOMIC_ACQUIRE);
  for (int i = 0; i < kAttempts; ++i) {
    const int others = present & ~kStepBit;
    if ((present & ~LoadRelaxed(shared_bits_)) != LoadRelaxed(own_mask_)) return;
    if (__atomic_compare_exchange_n(mask, &present, others | bit, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return;
  }
}

void NetworkWindows::Hold() {
  StoreRelaxed(is_held_, true);
  StoreBit();
}

void NetworkWindows::Change(uint64_t now_ns) {
  if (is_changing_.exchange(true, std::memory_order_acquire)) return;  // another thread is at it
  const uint64_t realtime_ns = ReadClock(CLOCK_REALTIME);
  const WindowPhase phase = PhaseAt(
      {.period_ns = LoadRelaxed(period_ns_), .share_ppm = LoadRelaxed(share_ppm_)}, realtime_ns);
  StoreRelaxed(is_open_, phase.is_open);
  StoreRelaxed(is_held_, false);
  StoreBit();
  StoreRelaxed(next_change_ns_,
               now_ns + std::min(phase.edge_ns - realtime_ns, LoadRelaxed(period_ns_)));
  StoreRelease(is_changing_, false);
}

}  // namespace nccl_exporter::plugin
