// SPDX-License-Identifier: Apache-2.0
// Whether CLOCK_MONOTONIC runs faster or slower than TimestampCheck allows for. ntpd slews it by a
// part in two thousand at most, chronyd by a twelfth, after NTP was away or a machine was moved.
// One thread at a time, under the lock of the communicator's completions.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// Clocks drift from each other, and ntpd slews, by far less than a part in so many.
inline constexpr int64_t kClockDriftDivisor = 1024;
// GPU clocks tick in steps of up to 1 us.
inline constexpr int64_t kClockSlackNs = 4096;

class SlewWatch {
 public:
  static constexpr uint64_t kLookNs = 1'000'000'000;  // one look a second costs nothing

  bool IsDue(uint64_t now_ns) const { return now_ns >= LoadRelaxed(seen_ns_) + kLookNs; }

  // True: it was slewed in the last second or two, or since the last look.
  [[gnu::cold]] bool Look() {
    const uint64_t now_ns = NowNs();
    const uint64_t raw_ns = ReadClock(CLOCK_MONOTONIC_RAW);
    // A thread that is held up between the two reads nothing.
    return NowNs() < now_ns + kClockSlackNs && See(now_ns, raw_ns);
  }

  // The two clocks at one moment.
  bool See(uint64_t now_ns, uint64_t raw_ns) {
    const auto gap_ns = static_cast<int64_t>(now_ns - raw_ns);
    if (LoadRelaxed(seen_ns_) == 0) Store(now_ns, gap_ns);
    const auto age_ns = static_cast<int64_t>(now_ns - LoadRelaxed(before_ns_));
    const int64_t change_ns = gap_ns - LoadRelaxed(gap_before_ns_);
    if (IsDue(now_ns)) Store(now_ns, gap_ns);
    return (change_ns < 0 ? -change_ns : change_ns) > age_ns / kClockDriftDivisor + kClockSlackNs;
  }

  void Reset() { StoreRelaxed(seen_ns_, uint64_t{0}); }

 private:
  void Store(uint64_t now_ns, int64_t gap_ns) {
    const bool is_first = LoadRelaxed(seen_ns_) == 0;
    StoreRelaxed(before_ns_, is_first ? now_ns : LoadRelaxed(seen_ns_));
    StoreRelaxed(gap_before_ns_, is_first ? gap_ns : LoadRelaxed(gap_ns_));
    StoreRelaxed(seen_ns_, now_ns);
    StoreRelaxed(gap_ns_, gap_ns);
  }

  // The last look that was due, and the one before.
  AtomicU64 seen_ns_{0};
  AtomicU64 before_ns_{0};
  std::atomic<int64_t> gap_ns_{0};
  std::atomic<int64_t> gap_before_ns_{0};
};

}  // namespace nccl_exporter::plugin
