// SPDX-License-Identifier: Apache-2.0
// Counter of operations for each of 64 channels, of which the highest is asked for. One thread.
#pragma once

#include <cstdint>

#include "plugin/timing/work_items.h"

namespace nccl_exporter::plugin {

// The counters lie across words: word i holds bit i of all 64 counters.
class MostOnAChannel {
 public:
  // An operation that ran on these channels, one bit each.
  void Add(uint64_t channels) {
    for (uint64_t& bit : bits_) {
      const uint64_t carry = bit & channels;
      bit ^= channels;
      channels = carry;
    }
    overflown_ |= channels;
  }
  // The most operations that one channel has; no more than 2^kBits.
  uint64_t Count() const {
    if (overflown_ != 0) return uint64_t{1} << kBits;
    uint64_t count = 0;
    // The channels that have the most, by the bits that have been looked at.
    uint64_t most = ~uint64_t{0};
    for (int i = kBits; i-- > 0;) {
      if ((bits_[i] & most) == 0) continue;
      most &= bits_[i];
      count |= uint64_t{1} << i;
    }
    return count;
  }

 private:
  static constexpr int kBits = 7;
  static_assert(uint64_t{1} << kBits > WorkItems::kRingEntries);
  uint64_t bits_[kBits]{};
  uint64_t overflown_ = 0;
};

}  // namespace nccl_exporter::plugin
