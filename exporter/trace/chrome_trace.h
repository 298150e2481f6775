// SPDX-License-Identifier: Apache-2.0
// Traces in Chrome's format: processes, tracks, slices, counters and arrows on one time axis. Pure
// functions, for any thread.
#pragma once

#include <cstdint>
#include <string>

#include "exporter/trace/clock_alignment.h"

namespace nccl_exporter::exporter {

// Only the begin of a call is known. It is drawn this long, or until the next one.
inline constexpr int64_t kDrawnCallNs = 1000;

// A whole file: the events, the time of the epoch at which their times begin, and the trace itself
// under kTraceKey, from which other commands read it. Processes are in the order of job and global
// rank; those without one come last.
std::string ChromeTrace(const ClockAlignment& alignment);

}  // namespace nccl_exporter::exporter
