// SPDX-License-Identifier: Apache-2.0
// Time of an API call as the payload of its handle, so that a call needs no table. Any thread.
//
// A payload has 43 bits of units of 1024 ns since the plugin started: two halves of 52 days.
// `half_` is the half that the latest call was in, counted from the start. A call that is asked for
// lies in that half or in the one before.
#pragma once

#include <cstdint>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// All zeros is its first state, as in a forked child.
class CallClock {
 public:
  static constexpr int kUnitShift = 10;
  static constexpr uint64_t kUnitNs = uint64_t{1} << kUnitShift;
  static constexpr int kPayloadBits = 43;

  // Once, before the first call.
  void Open(uint64_t start_ns) { start_ns_ = start_ns; }

  // Payload of a call that is made now (CLOCK_MONOTONIC).
  uint64_t PayloadOf(uint64_t now_ns) {
    const uint64_t units = (now_ns - start_ns_) >> kUnitShift;
    if (LoadRelaxed(half_) != units >> kHalfShift) StoreRelaxed(half_, units >> kHalfShift);
    return units & ((uint64_t{1} << kPayloadBits) - 1);
  }
  // When the call was made, at most a unit too early. False if that is not known.
  bool TimeOf(uint64_t payload, uint64_t* call_ns) const {
    const uint64_t latest_half = LoadRelaxed(half_);
    const bool is_former = ((latest_half ^ payload >> kHalfShift) & 1) != 0;
    if (is_former && latest_half == 0) return false;
    const uint64_t half = latest_half - (is_former ? 1 : 0);
    const uint64_t units = half << kHalfShift | (payload & ((uint64_t{1} << kHalfShift) - 1));
    *call_ns = start_ns_ + (units << kUnitShift);
    return true;
  }

 private:
  static constexpr int kHalfShift = kPayloadBits - 1;

  uint64_t start_ns_;
  AtomicU64 half_;
};

}  // namespace nccl_exporter::plugin
