// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/chrome_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "exporter/text/utf8.h"
#include "exporter/trace/slice_arguments.h"
#include "exporter/trace/trace_section.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;

class EventWriter {
 public:
  EventWriter(const Timeline& timeline, const std::vector<NodeTrace>& nodes, int64_t base_ns,
              int64_t first_pid)
      : timeline_(timeline), nodes_(nodes), base_ns_(base_ns), first_pid_(first_pid) {}

  std::string Write() {
    for (size_t i = 0; i < timeline_.processes.size(); ++i) NameProcess(i);
    for (size_t i = 0; i < timeline_.tracks.size(); ++i) NameTrack(i);
    for (const TimelineSlice& slice : timeline_.slices) AddSlice(slice);
    for (const TimelineCount& count : timeline_.counts) AddCount(count);
    for (size_t i = 0; i < timeline_.arrows.size(); ++i) AddArrow(i);
    return std::move(out_);
  }

 private:
  template <typename... Arguments>
  void Add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }
  // Opens an event with its phase and place.
  void Begin(char phase, size_t track) {
    if (!out_.empty()) out_ += ",\n";
    Add(R"({{"ph":"{}","pid":{},"tid":{})", phase, PidOf(timeline_.tracks[track].process),
        TidOf(track));
  }
  // Perfetto before August 2025 takes threads 0 and 1 for one.
  static size_t TidOf(size_t track) { return 1 + track; }
  int64_t PidOf(size_t process) const { return first_pid_ + static_cast<int64_t>(process); }
  void AddTime(std::string_view key, int64_t ns) {
    const bool is_negative = ns < 0;
    const uint64_t size = is_negative ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    Add(R"(,"{}":{}{}.{:03})", key, is_negative ? "-" : "", size / 1000, size % 1000);
  }
  void AddText(std::string_view key, std::string_view text) {
    Add(R"(,"{}":)", key);
    AppendQuoted(text, out_);
  }

  void NameProcess(size_t process) {
    if (!out_.empty()) out_ += ",\n";
    Add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":)", PidOf(process));
    AppendQuoted(timeline_.processes[process], out_);
    Add("}}}},\n");
    Add(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})",
        PidOf(process), process);
  }
  void NameTrack(size_t track) {
    if (timeline_.tracks[track].is_counter) return;
    Begin('M', track);
    out_ += R"(,"name":"thread_name","args":{"name":)";
    AppendQuoted(timeline_.tracks[track].name, out_);
    out_ += "}}";
    Begin('M', track);
    Add(R"(,"name":"thread_sort_index","args":{{"sort_index":{}}}}})", track);
  }
  void AddSlice(const TimelineSlice& slice) {
    Begin('X', slice.track);
    AddTime("ts", slice.begin_ns - base_ns_);
    AddTime("dur", slice.end_ns - slice.begin_ns);
    AddText("cat", "nccl");
    AddText("name", SliceName(slice, nodes_, timeline_.ranks));
    out_ += R"(,"args":{)";
    bool is_first = true;
    VisitArguments(slice, nodes_, timeline_.ranks, [&](std::string_view name, const auto& value) {
      Add(R"({}"{}":)", is_first ? "" : ",", name);
      is_first = false;
      if constexpr (std::is_convertible_v<decltype(value), std::string_view>) {
        AppendQuoted(value, out_);
      } else {
        Add("{}", value);
      }
    });
    out_ += "}}";
  }
  void AddCount(const TimelineCount& count) {
    Begin('C', count.track);
    AddTime("ts", count.at_ns - base_ns_);
    AddText("name", timeline_.tracks[count.track].name);
    Add(R"(,"args":{{"operations":{}}}}})", count.value);
  }
  // An arrow begins with the slice that it comes from; it ends in the slice around its time.
  void AddArrow(size_t number) {
    const TimelineArrow& arrow = timeline_.arrows[number];
    const std::string_view name = arrow.is_call ? "call" : "last rank";
    const TimelineSlice& from = timeline_.slices[arrow.from];
    Begin('s', from.track);
    AddTime("ts", from.begin_ns - base_ns_);
    Add(R"(,"cat":"nccl","name":"{}","id":{}}})", name, FlowId(number));
    Begin('f', timeline_.slices[arrow.to].track);
    AddTime("ts", arrow.at_ns - base_ns_);
    Add(R"(,"bp":"e","cat":"nccl","name":"{}","id":{}}})", name, FlowId(number));
  }
  // Other files have flows of their own, with numbers that begin at 1 or at a correlation.
  uint64_t FlowId(size_t number) const {
    constexpr uint64_t kFirst = uint64_t{1} << 40;
    return kFirst + number;
  }

  const Timeline& timeline_;
  const std::vector<NodeTrace>& nodes_;
  const int64_t base_ns_;
  const int64_t first_pid_;
  std::string out_;
};

}  // namespace

std::string ChromeEvents(const Timeline& timeline, const std::vector<NodeTrace>& nodes,
                         int64_t base_ns, int64_t first_pid) {
  return EventWriter(timeline, nodes, base_ns, first_pid).Write();
}

std::string ChromeTrace(const Timeline& timeline, const std::vector<NodeTrace>& nodes) {
  return fmt::format("{{\"baseTimeNanoseconds\":{},\"displayTimeUnit\":\"ns\",\n\"{}\":{},\n",
                     timeline.base_ns, kTraceKey, TraceSection(nodes)) +
         "\"traceEvents\":[\n" + ChromeEvents(timeline, nodes, timeline.base_ns, 1) + "\n]}\n";
}

}  // namespace nccl_exporter::exporter
