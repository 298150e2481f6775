// SPDX-License-Identifier: Apache-2.0
// Durations by the processor's counter (x86: TSC, Arm: CNTVCT). On an AMD EPYC a reading costs two
// fifths of one of CLOCK_MONOTONIC, which the kernel computes from the same counter.
//
// It is used where the kernel keeps its own time by it. There it runs at one rate on all
// processors. A process is not told the rate, so it is measured against CLOCK_MONOTONIC again and
// again, over 2^28 counts or more (0.1 s at 2.5 GHz, 11 s at 25 MHz), at the end of an operation.
// It is known as long as two measurements in a row agree within a thousandth. While it is not
// known, users read CLOCK_MONOTONIC.
//
// The counter jumps when a machine is suspended, or moved to another host. So each measurement that
// disagrees begins another era: what was counted in an era before does not count. A jump by less
// than 2^28 counts is not seen. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// All zeros is its first state: not in use.
class CounterClock {
 public:
  static constexpr char kClockSourceFile[] =
      "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  // Between two measurements, at least.
  static constexpr uint64_t kInterval = uint64_t{1} << 28;

  // Whether the kernel keeps its time by the counter, as the file says.
  static bool KernelKeepsTimeByIt(const char* clock_source_file = kClockSourceFile);
  // Once, before any other.
  void Open(bool is_used) {
    if (is_used) Measure();
    is_used_ = is_used;
  }

  static uint64_t Count() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return 0;
#endif
  }

  // Nanoseconds of 2^32 counts; 0: not known.
  uint64_t Rate() const { return LoadRelaxed(rate_); }
  static uint64_t ToNs(uint64_t counts, uint64_t rate) {
    return static_cast<uint64_t>(Wide{counts} * rate >> kRateShift);
  }
  // At the end of an operation, before its counts are read.
  void MeasureIfDue() {
    if (is_used_ && Count() - LoadRelaxed(base_count_) >= kInterval) Measure();
  }
  uint32_t Era() const { return era_.load(std::memory_order_relaxed); }

  // Both clocks at one moment.
  struct Reading {
    uint64_t count;
    uint64_t ns;
  };
  // For tests: a measurement. One thread at a time.
  void Take(const Reading& reading);

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr int kRateShift = 32;

  [[gnu::cold, gnu::noinline]] void Measure();

  AtomicU64 base_count_;  // the latest reading
  AtomicU64 base_ns_;
  AtomicU64 latest_rate_;  // whether it is believed or not
  AtomicU64 rate_;
  std::atomic<uint32_t> era_;
  std::atomic<bool> is_measuring_;
  bool is_used_;
};

}  // namespace nccl_exporter::plugin
