// SPDX-License-Identifier: Apache-2.0
// Perfetto's own format (proto/perfetto_trace.proto). A pure function, for any thread.
#pragma once

#include <string>
#include <vector>

#include "exporter/trace/timeline.h"

namespace nccl_exporter::exporter {

// One clock snapshot, a descriptor of each track, and the events. It has no section with the trace
// itself, so `trace merge` and `trace summary` do not read it.
std::string PerfettoTrace(const Timeline& timeline, const std::vector<collector::NodeTrace>& nodes);

}  // namespace nccl_exporter::exporter
