// SPDX-License-Identifier: Apache-2.0
// A trace beside the events of a file of PyTorch's profiler (Kineto). A pure function, for any
// thread.
#pragma once

#include <string>

#include "exporter/trace/clock_alignment.h"

namespace nccl_exporter::exporter {

// The profiler's file with the events of a trace, and the trace itself under kTraceKey, as
// ChromeTrace() has them. Any text is allowed; `fault` says in one line why it is no such file, and
// is empty if it is one.
std::string BesideProfile(const std::string& profile, const ClockAlignment& alignment,
                          std::string& fault);

}  // namespace nccl_exporter::exporter
