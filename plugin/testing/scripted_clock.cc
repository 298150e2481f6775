// SPDX-License-Identifier: Apache-2.0
#include "plugin/testing/scripted_clock.h"

#include <time.h>

using nccl_exporter::plugin::ScriptedClock;

extern "C" int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  ++ScriptedClock::readings;
  const bool is_realtime = clock == CLOCK_REALTIME;
  const uint64_t ns = ScriptedClock::now_ns +
                      static_cast<uint64_t>(is_realtime ? ScriptedClock::realtime_offset_ns : 0);
  time->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}
