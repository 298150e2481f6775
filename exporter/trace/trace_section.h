// SPDX-License-Identifier: Apache-2.0
// The part of a Chrome trace file that other commands read: nodes as they were recorded, each time
// in its own clock. Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collector/trace/node_trace.h"

namespace nccl_exporter::exporter {

// Key of the section in the file. Viewers ignore keys that they do not know.
inline constexpr std::string_view kTraceKey = "ncclExporterTrace";
// The section's first key. A reader refuses another number.
inline constexpr int kTraceVersion = 3;

// One JSON object. Text of other processes is made valid UTF-8.
std::string TraceSection(const std::vector<collector::NodeTrace>& nodes);

// Values of a file that are kept while it is read, each some 20 bytes: four million operations.
// More than that is no trace that anybody looks at, and would take the memory of the machine.
inline constexpr size_t kMostTraceValues = 50'000'000;

// The nodes of a file, whose text is a Chrome trace with the section. Empty if it is not one, or
// has more values; then `fault` says why, in one line. Any text is allowed.
std::vector<collector::NodeTrace> ReadTraceSection(std::string_view text, std::string& fault,
                                                   size_t most_values = kMostTraceValues);

}  // namespace nccl_exporter::exporter
