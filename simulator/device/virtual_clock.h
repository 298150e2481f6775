// SPDX-License-Identifier: Apache-2.0
// The time that a plugin reads during a callback. This program's own clock_gettime, which comes
// before libc's when symbols are resolved, shows a thread inside of a scope the time that the job
// is at, and the real time otherwise.
#pragma once

#include <cstdint>

namespace nccl_exporter::sim {

// When the job began, by both clocks.
struct JobEpoch {
  int64_t monotonic_ns = 0;
  int64_t realtime_ns = 0;
};

int64_t RealMonotonicNs();
int64_t RealRealtimeNs();

// Sets the epoch of all scopes; call it before the first of them, and before there are threads. A
// plugin that is started later reads no clock but clock_gettime.
void SetJobEpoch(const JobEpoch& epoch);
const JobEpoch& TheJobEpoch();

// From that time of the job on, the realtime clock of this process is off by so much.
void SetClockStep(int64_t job_ns, int64_t by_ns);

// While it lives, the clocks of the calling thread stand still at `job_ns` after the epoch. Scopes
// do not nest.
class VirtualTime {
 public:
  explicit VirtualTime(int64_t job_ns);
  ~VirtualTime();
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;
};

}  // namespace nccl_exporter::sim
