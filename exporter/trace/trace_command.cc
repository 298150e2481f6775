// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/trace_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "exporter/exposition/gzip.h"
#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/clock_alignment.h"
#include "exporter/trace/kineto_file.h"
#include "exporter/trace/new_file.h"
#include "exporter/trace/timeline.h"
#include "exporter/trace/trace_section.h"
#include "exporter/trace/trace_summary.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedProcess;

// What a file of gzip begins with.
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr size_t kPartBytes = size_t{1} << 20;  // that are read at a time

std::string Reason() { return std::strerror(errno); }

// The text of a file, decompressed if it is compressed.
std::string ReadText(const std::string& path, std::string& fault) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  const auto part = std::make_unique<std::array<char, kPartBytes>>();
  while (file && text.size() <= kMostTraceFileBytes) {
    file.read(part->data(), kPartBytes);
    text.append(part->data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    fault = path + ": " + Reason();
    return "";
  }
  if (text.size() > kMostTraceFileBytes) {
    fault = path + ": it has more than 4 GiB";
    return "";
  }
  if (!text.starts_with(kGzipMagic)) return text;
  std::optional<std::string> plain = Decompressed(text, kMostTraceFileBytes);
  if (!plain) fault = path + ": the compressed data are damaged, or more than 4 GiB";
  return plain.value_or("");
}

// The nodes of all files. Two of one name get numbers.
std::vector<NodeTrace> ReadAll(const std::vector<std::string>& paths, std::string& fault) {
  std::vector<NodeTrace> nodes;
  std::map<std::string, int> seen;
  for (const std::string& path : paths) {
    const std::string text = ReadText(path, fault);
    if (!fault.empty()) return {};
    std::vector<NodeTrace> of_file = ReadTraceSection(text, fault);
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

std::string Encoded(const std::string& path, const Timeline& timeline,
                    const std::vector<NodeTrace>& nodes, const KinetoFile* beside) {
  std::string text;
  if (beside != nullptr) {
    text = beside->With(ChromeEvents(timeline, nodes, beside->base_ns(), beside->first_free_pid()),
                        kTraceKey, TraceSection(nodes));
  } else {
    text = ChromeTrace(timeline, nodes);
  }
  return path.ends_with(".gz") ? Gzip(text) : text;
}

size_t CountOperations(const std::vector<NodeTrace>& nodes) {
  size_t operations = 0;
  for (const NodeTrace& node : nodes) {
    for (const TracedProcess& process : node.processes) {
      for (const TracedCommunicator& communicator : process.communicators)
        operations += communicator.operations.size() + communicator.in_flight.size();
    }
  }
  return operations;
}

// Writes nodes that are aligned.
void Write(const TraceRequest& request, const std::vector<NodeTrace>& nodes,
           const ClockAlignment& alignment, TraceResult& result) {
  std::optional<KinetoFile> beside;
  if (!request.append_to.empty()) {
    std::string text = ReadText(request.append_to, result.fault);
    if (!result.fault.empty()) return;
    beside.emplace(std::move(text), result.fault);
    if (!result.fault.empty()) {
      result.fault = request.append_to + ": " + result.fault;
      return;
    }
  }
  const Timeline timeline = MakeTimeline(alignment);
  std::string encoded = Encoded(request.output, timeline, nodes, beside ? &*beside : nullptr);
  const size_t operations = CountOperations(nodes);
  if (request.output.empty()) {
    result.text = std::move(encoded);
    return;
  }
  result.fault = WriteNewFile(request.output, encoded);
  if (!result.fault.empty()) return;
  result.notes += fmt::format("{}: {} operations of {} processes\n", request.output, operations,
                              timeline.processes.size());
}

}  // namespace

bool IsOfJobs(const JobLabels& labels, const std::vector<std::string>& wanted) {
  return std::ranges::all_of(wanted, [&](const std::string& job) {
    const bool is_pod = labels.pod == job || labels.pod.starts_with(job + "-");
    return labels.job == job || labels.name_space == job || is_pod;
  });
}

TraceResult WriteTrace(const TraceRequest& request, NodeTrace trace) {
  TraceResult result;
  if (!request.wanted.empty()) {
    std::erase_if(trace.processes, [&](const TracedProcess& process) {
      return !IsOfJobs({.job = process.job, .name_space = process.name_space, .pod = process.pod},
                       request.wanted);
    });
    if (trace.processes.empty()) {
      result.fault = "no process of this job has a segment here";
      return result;
    }
  }
  const std::vector<NodeTrace> nodes{std::move(trace)};
  const ClockAlignment alignment(nodes);
  Write(request, nodes, alignment, result);
  if (result.fault.empty()) result.notes += MissingText(nodes);
  return result;
}

TraceResult MergeTraces(const TraceRequest& request) {
  TraceResult result;
  const std::vector<NodeTrace> nodes = ReadAll(request.files, result.fault);
  if (!result.fault.empty()) return result;
  const ClockAlignment alignment(nodes);
  Write(request, nodes, alignment, result);
  if (result.fault.empty()) result.notes += AlignmentText(alignment);
  return result;
}

TraceResult SummarizeTraces(const TraceRequest& request) {
  TraceResult result;
  const std::vector<NodeTrace> nodes = ReadAll(request.files, result.fault);
  if (result.fault.empty()) result.text = TraceSummary(ClockAlignment(nodes));
  return result;
}

}  // namespace nccl_exporter::exporter
