// SPDX-License-Identifier: Apache-2.0
// Mode of a job's clock: in real time, or as fast as the machine plays it. Any thread may sleep by
// it.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "simulator/device/virtual_clock.h"

namespace nccl_exporter::sim {

class ClockMode {
 public:
  ClockMode(bool is_real_time, const std::atomic<bool>& stop_asked)
      : is_real_time_(is_real_time), stop_asked_(stop_asked) {}

  bool StopAsked() const { return stop_asked_.load(std::memory_order_relaxed); }

  // The moment on the machine's monotonic clock at which something due at `job_ns` happens; it has
  // passed if the job is played as fast as it goes.
  std::chrono::steady_clock::time_point Moment(int64_t job_ns) const {
    const std::chrono::nanoseconds since_boot(is_real_time_ ? TheJobEpoch().monotonic_ns + job_ns
                                                            : 0);
    return std::chrono::steady_clock::time_point(since_boot);
  }

  // A job in real time should have been there half a second ago: the machine is too busy.
  bool IsBehind(int64_t job_ns) const {
    constexpr std::chrono::milliseconds kBehind(500);
    return is_real_time_ && std::chrono::steady_clock::now() > Moment(job_ns) + kBehind;
  }

  // Sleeps until then, or until the job is asked to stop.
  void SleepUntil(std::chrono::steady_clock::time_point moment) const {
    constexpr std::chrono::milliseconds kSliceToNoticeAStop(50);
    while (!StopAsked()) {
      const auto now = std::chrono::steady_clock::now();
      if (now >= moment) return;
      std::this_thread::sleep_until(std::min(moment, now + kSliceToNoticeAStop));
    }
  }

  // Takes so much CPU time, which lasts longer where others take the CPU. Nothing if the job is
  // played as fast as it goes.
  void Compute(std::chrono::duration<double> cpu_time) const {
    const auto taken = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    const auto before = taken();
    while (is_real_time_ && !StopAsked() && taken() - before < cpu_time) {
    }
  }

 private:
  bool is_real_time_;
  const std::atomic<bool>& stop_asked_;
};

}  // namespace nccl_exporter::sim
