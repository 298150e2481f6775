// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/chrome_events.h"

namespace nccl_exporter::exporter {

void ChromeEvents::Begin(char phase, size_t process) {
  if (!out_.empty()) out_ += ",\n";
  Write(R"({{"ph":"{}","pid":{})", phase, process + 1);
}

void ChromeEvents::WriteTime(std::string_view key, int64_t ns) {
  const bool is_negative = ns < 0;
  const uint64_t size = is_negative ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  Write(R"(,"{}":{}{}.{:03})", key, is_negative ? "-" : "", size / 1000, size % 1000);
}

void ChromeEvents::WriteMetadata(std::string_view of, std::string_view name, size_t index,
                                 std::optional<size_t> track) {
  const std::string tid = track ? fmt::format(R"("tid":{},)", *track) : "";
  Begin('M', processes_ - 1);
  Write(R"(,{}"name":"{}_name","args":{{)", tid, of);
  WriteArgument("name", name);
  out_ += "}}";
  Begin('M', processes_ - 1);
  Write(R"(,{}"name":"{}_sort_index","args":{{"sort_index":{}}}}})", tid, of, index);
}

size_t ChromeEvents::AddProcess(std::string_view name) {
  const size_t process = processes_++;
  WriteMetadata("process", name, process, std::nullopt);
  return process;
}

// Perfetto before August 2025 takes threads 0 and 1 for one.
size_t ChromeEvents::AddTrack(std::string_view name) {
  const size_t track = ++tracks_;
  WriteMetadata("thread", name, track, track);
  return track;
}

void ChromeEvents::BeginSlice(const TraceSlice& slice, std::string_view name) {
  Begin('X', slice.process);
  WriteArgument("tid", slice.track);
  WriteTime("ts", slice.begin_ns - base_ns_);
  WriteTime("dur", slice.end_ns - slice.begin_ns);
  WriteArgument("cat", "nccl");
  WriteArgument("name", name);
  out_ += R"(,"args":{)";
}

void ChromeEvents::AddCount(std::string_view name, int64_t at_ns, int64_t operations) {
  Begin('C', processes_ - 1);
  WriteTime("ts", at_ns - base_ns_);
  WriteArgument("name", name);
  Write(R"(,"args":{{"operations":{}}}}})", operations);
}

// An arrow ends in the slice around its time.
void ChromeEvents::AddArrow(std::string_view name, const TraceSlice& from, const TraceSlice& to,
                            int64_t at_ns) {
  const uint64_t flow = ++arrows_;
  Begin('s', from.process);
  WriteArgument("tid", from.track);
  WriteTime("ts", from.begin_ns - base_ns_);
  Write(R"(,"cat":"nccl","name":"{}","id":{}}})", name, flow);
  Begin('f', to.process);
  WriteArgument("tid", to.track);
  WriteTime("ts", at_ns - base_ns_);
  Write(R"(,"bp":"e","cat":"nccl","name":"{}","id":{}}})", name, flow);
}

}  // namespace nccl_exporter::exporter
