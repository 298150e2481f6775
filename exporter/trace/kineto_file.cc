// SPDX-License-Identifier: Apache-2.0
// BesideProfile(). Files of the profiler have hundreds of megabytes: they are read event by event,
// and copied as text.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/trace_section.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

// Perfetto takes numbers of processes of 32 bits.
constexpr int64_t kMostPid = INT32_MAX / 2;

// Findings of a scan of a file.
struct Scan {
  bool has_events = false;  // the key at the top, with an array
  bool is_ours = false;
  // The time of the epoch at which its times begin; 0 in older files, whose times are of the epoch
  // themselves.
  int64_t base_ns = 0;
  int64_t most_pid = 0;  // of processes of the system and GPUs
};

// Throws json::exception.
Scan ScanOf(const std::string& text) {
  Scan scan;
  std::string key;
  // Keeps nothing.
  const auto see = [&](int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if (event == Event::key) {
      key = value.get<std::string>();
      scan.is_ours |= depth == 1 && key == kTraceKey;
    }
    scan.has_events |= event == Event::array_start && depth == 1 && key == "traceEvents";
    if (event == Event::value && value.is_number_integer()) {
      const int64_t number = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX
                                 ? INT64_MAX
                                 : value.get<int64_t>();
      if (depth == 1 && key == "baseTimeNanoseconds") scan.base_ns = number;
      if (key == "pid") scan.most_pid = std::max(scan.most_pid, number);
    }
    return event == Event::key || event == Event::object_start || event == Event::array_start;
  };
  [[maybe_unused]] const json nothing = json::parse(text, see);
  return scan;
}

// Just behind the bracket of traceEvents. The text is valid JSON that has it: only strings and
// brackets have to be followed.
size_t FindEvents(std::string_view text) {
  int depth = 0;
  std::string_view latest;  // string at the top
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const size_t begin = i + 1;
      for (++i; text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
      if (depth == 1) latest = text.substr(begin, i - begin);
    } else if (c == '{' || c == '[') {
      if (c == '[' && depth == 1 && latest == "traceEvents") return i + 1;
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::string_view::npos;
}

std::string FaultOf(const std::string& profile, Scan& scan) {
  try {
    scan = ScanOf(profile);
  } catch (const json::exception&) {
    return "it is no JSON";
  }
  if (!scan.has_events) return "it has no array traceEvents";
  if (scan.is_ours) return "it is a trace of nccl-exporter already";
  return scan.most_pid <= kMostPid
             ? ""
             : "a process in it has a number above " + std::to_string(kMostPid);
}

}  // namespace

std::string BesideProfile(const std::string& profile, const ClockAlignment& alignment,
                          std::string& fault) {
  Scan scan;
  fault = FaultOf(profile, scan);
  if (!fault.empty()) return "";
  const size_t top = profile.find('{') + 1, events_at = FindEvents(profile);
  const bool has_events = profile[profile.find_first_not_of(" \t\r\n", events_at)] != ']';
  const std::string events = EventsOf(alignment, scan.base_ns, scan.most_pid + 1);
  std::string out = profile.substr(0, top);
  out.append("\n\"")
      .append(kTraceKey)
      .append("\":")
      .append(TraceSection(alignment.nodes()))
      .append(",");
  out.append(profile, top, events_at - top).append("\n").append(events);
  if (has_events && !events.empty()) out += ',';
  return out.append(profile, events_at);
}

}  // namespace nccl_exporter::exporter
