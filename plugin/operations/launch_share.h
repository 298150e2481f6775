// SPDX-License-Identifier: Apache-2.0
// Share of each operation in the time of its launch (proto/README.md, rule 5), and the work items
// of a launch: pure arithmetic. One thread.
#pragma once

#include <cstdint>

#include "plugin/timing/work_items.h"
#include "proto/buckets.h"
#include "proto/collective.h"

namespace nccl_exporter::plugin {

// Collectives, sends and receives of one launch are timed apart: a send and a receive run at the
// same time.
enum class LaunchPart : uint8_t { kCollectives = 0, kSends = 1, kReceives = 2 };
inline constexpr int kLaunchParts = 3;

inline LaunchPart LaunchPartOf(Function function) {
  if (function == Function::kSend) return LaunchPart::kSends;
  return function == Function::kRecv ? LaunchPart::kReceives : LaunchPart::kCollectives;
}

class LaunchShare {
 public:
  void Add(uint64_t start_ns, uint64_t stop_ns, uint64_t bytes) {
    if (start_ns < start_ns_) start_ns_ = start_ns;
    if (stop_ns > stop_ns_) stop_ns_ = stop_ns;
    weight_ += Weight(bytes);
  }
  // An operation without parts of its own, whose time is that of the others.
  void AddCarried(uint64_t bytes) { weight_ += Weight(bytes); }
  void Reject() { is_rejected_ = true; }
  // One of those that were added has good time stamps of its own.
  void CountGood(uint64_t count = 1) { good_ += count; }

  bool is_rejected() const { return is_rejected_; }
  uint64_t good() const { return good_; }
  bool has_interval() const { return stop_ns_ != 0; }
  uint64_t start_ns() const { return start_ns_; }
  uint64_t stop_ns() const { return stop_ns_; }
  // Duration of one of the members that were added.
  uint64_t DurationNs(uint64_t bytes) const {
    const uint64_t span_ns = stop_ns_ > start_ns_ ? stop_ns_ - start_ns_ : 0;
    return weight_ <= Weight(bytes)
               ? span_ns
               : static_cast<uint64_t>(uint128_t{span_ns} * Weight(bytes) / weight_);
  }

 private:
  static uint64_t Weight(uint64_t bytes) { return bytes > 0 ? bytes : 1; }

  uint64_t start_ns_ = ~uint64_t{0};
  uint64_t stop_ns_ = 0;
  uint128_t weight_ = 0;
  uint64_t good_ = 0;
  bool is_rejected_ = false;
};

// Counter of operations for each of 64 channels, of which the highest is asked for.
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
