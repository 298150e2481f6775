// SPDX-License-Identifier: Apache-2.0
// Moment, the two clocks that the collector uses, read together. For any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>

namespace nccl_exporter::collector {

struct Moment {
  int64_t realtime_ns = 0;
  int64_t monotonic_ns = 0;

  // The time when CLOCK_MONOTONIC showed `then_ns`, in nanoseconds since the epoch. 0 ("never")
  // stays 0. A time in the future becomes now: it comes from a file, and its writer may have
  // written anything.
  int64_t RealtimeOf(uint64_t then_ns) const {
    if (then_ns == 0) return 0;
    const uint64_t age_ns = AgeOf(then_ns);
    return realtime_ns - static_cast<int64_t>(age_ns);
  }

  // `then_ns` of CLOCK_MONOTONIC, at most now, for the same reason.
  int64_t MonotonicOf(uint64_t then_ns) const {
    return then_ns == 0 ? 0 : monotonic_ns - static_cast<int64_t>(AgeOf(then_ns));
  }

  // This moment for a process whose CLOCK_MONOTONIC is ahead of ours by `offset_ns`.
  Moment Ahead(int64_t offset_ns) const {
    return {.realtime_ns = realtime_ns, .monotonic_ns = monotonic_ns + offset_ns};
  }

  // Nanoseconds since CLOCK_MONOTONIC showed `then_ns`; 0 for the future.
  uint64_t AgeOf(uint64_t then_ns) const {
    const uint64_t now_ns = static_cast<uint64_t>(std::max<int64_t>(monotonic_ns, 0));
    return then_ns < now_ns ? now_ns - then_ns : 0;
  }
};

// The clock of the collector. Tests replace it.
using Clock = std::function<Moment()>;

inline Moment Now() {
  const auto read_ns = [](clockid_t id) {
    timespec time{};
    clock_gettime(id, &time);
    return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
  };
  return {.realtime_ns = read_ns(CLOCK_REALTIME), .monotonic_ns = read_ns(CLOCK_MONOTONIC)};
}

}  // namespace nccl_exporter::collector
