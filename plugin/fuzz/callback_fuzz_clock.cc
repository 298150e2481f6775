// SPDX-License-Identifier: Apache-2.0
// The clock that the plugin reads in a fuzzed session.
#include "plugin/fuzz/callback_fuzz_clock.h"

#include <time.h>

#include <atomic>

namespace nccl_exporter::plugin::fuzz {
namespace {

constexpr uint64_t kTickNs = 64;
std::atomic<uint64_t> now_ns{1'000'000'000'000};

}  // namespace

uint64_t ClockNs() { return now_ns.load(std::memory_order_relaxed); }
void AdvanceClock(uint64_t ns) { now_ns.fetch_add(ns, std::memory_order_relaxed); }

}  // namespace nccl_exporter::plugin::fuzz

extern "C" int __real_clock_gettime(clockid_t clock, timespec* time);

extern "C" int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, time);
  nccl_exporter::plugin::fuzz::AdvanceClock(nccl_exporter::plugin::fuzz::kTickNs);
  const uint64_t ns = nccl_exporter::plugin::fuzz::ClockNs();
  time->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}
