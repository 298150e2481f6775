// SPDX-License-Identifier: Apache-2.0
// What must hold of the files that `trace merge`, `trace summary` and `trace --append` read, which
// anybody may have written.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/testing/text_fuzz.h"
#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/clock_alignment.h"
#include "exporter/trace/kineto_file.h"
#include "exporter/trace/timeline.h"
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

void CheckTimeline(const Timeline& timeline) {
  std::vector<int64_t> latest(timeline.tracks.size(), INT64_MIN);
  for (const TimelineSlice& slice : timeline.slices) {
    if (slice.kind == SliceKind::kWait) continue;
    Require(slice.track < timeline.tracks.size(), "a slice has a track");
    Require(slice.end_ns >= slice.begin_ns, "a slice does not end before it begins");
    Require(slice.begin_ns >= latest[slice.track], "slices of a track are in order");
    latest[slice.track] = slice.begin_ns;
  }
  for (const TimelineArrow& arrow : timeline.arrows) {
    Require(arrow.from < timeline.slices.size() && arrow.to < timeline.slices.size(),
            "an arrow leads from slice to slice");
  }
}

}  // namespace

void CheckInput(std::string_view input) {
  std::string fault;
  BesideProfile(std::string(input), {}, {}, fault);
  Require(IsOneLine(fault), "a fault of a profile is one line");
  fault.clear();
  const std::vector<collector::NodeTrace> nodes = ReadTraceSection(input, fault);
  Require(IsOneLine(fault), "a fault is one line");
  Require(nodes.empty() == !fault.empty(), "a file has nodes or a fault");
  if (nodes.empty()) return;
  std::string again_fault;
  const std::string section = "{\"" + std::string(kTraceKey) + "\":" + TraceSection(nodes) + "}";
  const std::vector<collector::NodeTrace> again = ReadTraceSection(section, again_fault);
  Require(again_fault.empty(), "what is written can be read");
  const ClockAlignment alignment(nodes);
  const Timeline timeline = MakeTimeline(alignment);
  CheckTimeline(timeline);
  ChromeTrace(timeline, nodes);
  TraceSummary(alignment);
}

}  // namespace nccl_exporter::exporter::fuzz
