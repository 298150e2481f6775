// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/virtual_clock.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kNsPerSecond = 1000000000;
constexpr int64_t kOutside = INT64_MIN;

JobEpoch job_epoch;
int64_t step_job_ns = INT64_MAX;
int64_t step_by_ns = 0;
thread_local int64_t virtual_job_ns = kOutside;

// libc's, which needs no system call.
int RealClock(clockid_t clock, timespec* time) {
  static const auto get =
      reinterpret_cast<decltype(&clock_gettime)>(dlsym(RTLD_NEXT, "clock_gettime"));
  return get(clock, time);
}

int64_t RealNs(clockid_t clock) {
  timespec time{};
  RealClock(clock, &time);
  return time.tv_sec * kNsPerSecond + time.tv_nsec;
}

}  // namespace

int64_t RealMonotonicNs() { return RealNs(CLOCK_MONOTONIC); }
int64_t RealRealtimeNs() { return RealNs(CLOCK_REALTIME); }

void SetClockStep(int64_t job_ns, int64_t by_ns) {
  step_job_ns = job_ns;
  step_by_ns = by_ns;
}

void SetJobEpoch(const JobEpoch& epoch) { job_epoch = epoch; }
const JobEpoch& TheJobEpoch() { return job_epoch; }

VirtualTime::VirtualTime(int64_t job_ns) { virtual_job_ns = job_ns; }
VirtualTime::~VirtualTime() { virtual_job_ns = kOutside; }

}  // namespace nccl_exporter::sim

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  using namespace nccl_exporter::sim;
  const bool is_realtime = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  const bool is_monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
                            clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME;
  if (virtual_job_ns == kOutside || !(is_realtime || is_monotonic)) {
    return RealClock(clock, time);
  }
  const int64_t step_ns = is_realtime && virtual_job_ns >= step_job_ns ? step_by_ns : 0;
  const int64_t ns =
      virtual_job_ns + (is_realtime ? job_epoch.realtime_ns + step_ns : job_epoch.monotonic_ns);
  time->tv_sec = ns / kNsPerSecond;
  time->tv_nsec = ns % kNsPerSecond;
  return 0;
}
