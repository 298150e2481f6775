// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter trace`, `trace merge` and `trace summary`. For the first thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/trace/node_trace.h"

namespace nccl_exporter::exporter {

inline constexpr std::chrono::nanoseconds kDefaultTraceLength = std::chrono::seconds(30);
// A job's whole day is not what a trace is for; its memory is limited by kMostTracedOperations.
inline constexpr std::chrono::nanoseconds kMostTraceLength = std::chrono::hours(1);

// A file with more bytes, when it is not compressed, is refused: so much memory would be needed.
inline constexpr size_t kMostTraceFileBytes = UINT32_MAX;

// As given on the command line.
struct TraceRequest {
  std::optional<std::chrono::nanoseconds> last = {};  // part of the rings to write
  // Time to record; without this and `last`: kDefaultTraceLength.
  std::optional<std::chrono::nanoseconds> length = {};
  std::vector<std::string> wanted = {};  // jobs; empty: all processes
  std::string output = {};               // empty: standard output
  std::vector<std::string> files = {};   // of merge and summary
};

struct TraceResult {
  std::string text;   // for standard output
  std::string notes;  // for standard error
  std::string fault;  // one line; empty if all went well
};

// Writes the trace in Chrome's format, compressed if the name of the output ends with .gz. `trace`
// has its node's name.
TraceResult WriteTrace(const TraceRequest& request, collector::NodeTrace trace);

// Reads `request.files`, puts them on one time axis and writes one trace. The notes have offset and
// uncertainty of each node.
TraceResult MergeTraces(const TraceRequest& request);

// Summarizes `request.files`: what a viewer does not show.
TraceResult SummarizeTraces(const TraceRequest& request);

}  // namespace nccl_exporter::exporter
