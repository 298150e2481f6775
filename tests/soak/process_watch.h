// SPDX-License-Identifier: Apache-2.0
// Memory, threads and descriptors of a process, sampled every second, and whether they grow.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace nccl_exporter::soak {

struct Holdings {
  double seconds = 0;  // when, by Now()
  double resident_kib = 0;
  double descriptors = 0;
  double threads = 0;
  double cpu_seconds = 0;  // used since its start
  double series = 0;       // that it served; filled in by the caller
};
Holdings HoldingsOf(pid_t process, double now_seconds);

// Growth of one of the values: maxima of the second and the last third of the time, and the slope
// of a straight line through both.
struct Growth {
  double second_third = 0;
  double last_third = 0;
  double slope_per_minute = 0;
};
Growth GrowthOf(const std::vector<Holdings>& samples, double Holdings::*what);

}  // namespace nccl_exporter::soak
