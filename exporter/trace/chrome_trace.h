// SPDX-License-Identifier: Apache-2.0
// The Chrome trace event format, which Perfetto and chrome://tracing open. Pure functions, for any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "exporter/trace/timeline.h"

namespace nccl_exporter::exporter {

// The events, with commas between them. Times are microseconds after `base_ns`, of the epoch.
// `first_pid`: number of the first process; another file's processes may have those before.
std::string ChromeEvents(const Timeline& timeline, const TracedNodes& nodes, int64_t base_ns,
                         int64_t first_pid);

// A whole file: the events, the keys that PyTorch's profiler writes as well, and the trace itself
// under kTraceKey, from which other commands read it.
std::string ChromeTrace(const Timeline& timeline, const TracedNodes& nodes);

// Bytes per second; nothing if the operation shares its launch, or has no factor.
std::optional<uint64_t> BusBandwidthOf(const collector::TracedCommunicator& communicator,
                                       const collector::TracedOperation& operation);

}  // namespace nccl_exporter::exporter
