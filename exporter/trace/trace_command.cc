// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/trace_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "exporter/exposition/gzip.h"
#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/clock_alignment.h"
#include "exporter/trace/new_file.h"
#include "exporter/trace/trace_section.h"
#include "exporter/trace/trace_summary.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedProcess;

// The text of a file, decompressed if it is compressed.
std::string ReadText(const std::string& path, std::string& fault) {
  constexpr std::string_view kGzipMagic = "\x1f\x8b";
  std::ifstream file(path, std::ios::binary);
  std::string text, part(size_t{1} << 20, '\0');
  while (file && text.size() <= kMostTraceFileBytes) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part, 0, static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    fault = path + ": " + std::strerror(errno);
  } else if (text.size() > kMostTraceFileBytes) {
    fault = path + ": it has more than 4 GiB";
  } else if (text.starts_with(kGzipMagic)) {
    std::optional<std::string> plain = Decompressed(text, kMostTraceFileBytes);
    if (!plain) fault = path + ": the compressed data are damaged, or more than 4 GiB";
    return plain.value_or("");
  }
  return text;
}

// The nodes of all files. Two of one name get numbers.
TracedNodes ReadAll(const std::vector<std::string>& paths, std::string& fault) {
  TracedNodes nodes;
  std::map<std::string, int> seen;
  for (const std::string& path : paths) {
    const std::string text = ReadText(path, fault);
    if (!fault.empty()) return {};
    TracedNodes of_file = ReadTraceSection(text, fault);
    if (!fault.empty()) {
      fault = path + ": " + fault;
      return {};
    }
    for (NodeTrace& node : of_file) {
      const int count = ++seen[node.node];
      if (count > 1) node.node += fmt::format(" ({})", count);
      nodes.push_back(std::move(node));
    }
  }
  return nodes;
}

// Writes nodes that are aligned.
void Write(const TraceRequest& request, const ClockAlignment& alignment, TraceResult& result) {
  const TracedNodes& nodes = alignment.nodes();
  std::string text = ChromeTrace(alignment);
  if (request.output.ends_with(".gz")) text = Gzip(text);
  if (request.output.empty()) {
    result.text = std::move(text);
    return;
  }
  result.fault = WriteNewFile(request.output, text);
  if (!result.fault.empty()) return;
  size_t operations = 0, processes = 0;
  for (const NodeTrace& node : nodes) processes += node.processes.size();
  VisitCommunicators(nodes, [&](const TracePlace&, const auto& communicator) {
    operations += communicator.operations.size() + communicator.in_flight.size();
  });
  result.notes +=
      fmt::format("{}: {} operations of {} processes\n", request.output, operations, processes);
}

// Whether a process belongs to all of `wanted`, jobs as on the command line.
bool IsOfJobs(const TracedProcess& process, const std::vector<std::string>& wanted) {
  return std::ranges::all_of(wanted, [&](const std::string& job) {
    const bool is_pod = process.pod == job || process.pod.starts_with(job + "-");
    return process.job == job || process.name_space == job || is_pod;
  });
}

}  // namespace

TraceResult WriteTrace(const TraceRequest& request, NodeTrace trace) {
  TraceResult result;
  if (!request.wanted.empty()) {
    std::erase_if(trace.processes,
                  [&](const TracedProcess& process) { return !IsOfJobs(process, request.wanted); });
    if (trace.processes.empty()) {
      result.fault = "no process of this job has a segment here";
      return result;
    }
  }
  const TracedNodes nodes{std::move(trace)};
  const ClockAlignment alignment(nodes);
  Write(request, alignment, result);
  if (result.fault.empty()) result.notes += MissingText(nodes);
  return result;
}

TraceResult MergeTraces(const TraceRequest& request) {
  TraceResult result;
  const TracedNodes nodes = ReadAll(request.files, result.fault);
  if (!result.fault.empty()) return result;
  const ClockAlignment alignment(nodes);
  Write(request, alignment, result);
  if (result.fault.empty()) result.notes += AlignmentText(alignment);
  return result;
}

TraceResult SummarizeTraces(const TraceRequest& request) {
  TraceResult result;
  const TracedNodes nodes = ReadAll(request.files, result.fault);
  if (result.fault.empty()) result.text = TraceSummary(ClockAlignment(nodes));
  return result;
}

}  // namespace nccl_exporter::exporter
