// SPDX-License-Identifier: Apache-2.0
// Properties of the files that `trace merge` and `trace summary` read. Any user may have written
// them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/testing/text_fuzz.h"
#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/clock_alignment.h"
#include "exporter/trace/trace_section.h"
#include "exporter/trace/trace_summary.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "file_fuzz: broken promise: %s\n", promise);
  std::abort();
}

bool IsOneLine(const std::string& fault) {
  return std::ranges::all_of(fault, [](unsigned char c) { return c >= 0x20 && c != 0x7F; });
}

}  // namespace

void CheckInput(std::string_view input) {
  std::string fault;
  const std::vector<collector::NodeTrace> nodes = ReadTraceSection(input, fault);
  Require(IsOneLine(fault), "a fault is one line");
  Require(nodes.empty() == !fault.empty(), "a file has nodes or a fault");
  if (nodes.empty()) return;
  std::string again_fault;
  const std::string section = "{\"" + std::string(kTraceKey) + "\":" + TraceSection(nodes) + "}";
  const std::vector<collector::NodeTrace> again = ReadTraceSection(section, again_fault);
  Require(again_fault.empty(), "what is written can be read");
  const ClockAlignment alignment(nodes);
  Require(nlohmann::json::accept(ChromeTrace(alignment)), "the events are JSON");
  TraceSummary(alignment);
}

}  // namespace nccl_exporter::exporter::fuzz
