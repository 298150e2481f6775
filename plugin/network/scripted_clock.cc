// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/scripted_clock.h"

#include <time.h>

using nccl_exporter::plugin::ScriptedClock;

// CLOCK_REALTIME is the same: tests look at windows from their start on.
extern "C" int __wrap_clock_gettime(clockid_t, timespec* time) {
  ++ScriptedClock::readings;
  time->tv_sec = static_cast<time_t>(ScriptedClock::now_ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(ScriptedClock::now_ns % 1'000'000'000);
  return 0;
}
