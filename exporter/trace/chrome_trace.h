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

// The events, as ChromeEvents has them. Processes are in the order of job and global rank; those
// without one come last.
std::string EventsOf(const ClockAlignment& alignment, int64_t base_ns, int64_t first_pid);

// A whole file: the events, the keys that PyTorch's profiler writes as well, and the trace itself
// under kTraceKey, from which other commands read it.
std::string ChromeTrace(const ClockAlignment& alignment);

// A file of PyTorch's profiler (Kineto) with the events of a trace, and the trace itself under
// kTraceKey, as ChromeTrace() has them. Any text is allowed; `fault` says in one line why it is no
// such file, and is empty if it is one.
std::string BesideProfile(const std::string& profile, const ClockAlignment& alignment,
                          std::string& fault);

}  // namespace nccl_exporter::exporter
