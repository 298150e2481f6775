// SPDX-License-Identifier: Apache-2.0
// ChromeEvents, the events of a trace in Chrome's format, which Perfetto and chrome://tracing open.
// Not thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "exporter/text/utf8.h"
#include "exporter/trace/trace_place.h"

namespace nccl_exporter::exporter {

enum class SliceKind : uint8_t {
  kCall,      // of the API
  kKernel,    // from the first channel's start to the last one's stop
  kWait,      // part of a kernel: until the last rank surely entered
  kInFlight,  // from the call to the end of the window
  kChannel,   // of a kernel
  kStep,      // of a network operation, while it was the oldest one
};

// Times are nanoseconds since the epoch, by the clock of the first node.
struct TraceSlice {
  SliceKind kind = SliceKind::kKernel;
  size_t process = 0;
  size_t track = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  // Its origin. `operation`: in operations, in in_flight, or in channels or steps of the detail.
  TracePlace place = {};
  size_t operation = 0;
  std::optional<int64_t> uncertainty_ns = {};  // of both times together; of a wait: of its length
  std::optional<uint64_t> awaited_rank = {};   // of a wait
};

class ChromeEvents {
 public:
  // Times are written as microseconds after `base_ns`. `first_pid`: number of the first process;
  // another file's processes may have those before. `nodes` outlive this object.
  ChromeEvents(const TracedNodes& nodes, int64_t base_ns, int64_t first_pid)
      : nodes_(nodes), ranks_(nodes), base_ns_(base_ns), first_pid_(first_pid) {}

  const TraceRanks& ranks() const { return ranks_; }

  // Processes, and tracks of the latest one, are shown in this order. Return their numbers.
  size_t AddProcess(std::string_view name);
  size_t AddTrack(std::string_view name);

  // Those of a track come in the order of their begin, outer ones first.
  void Add(const TraceSlice& slice);
  // A step of a counter of the latest process.
  void AddCount(std::string_view name, int64_t at_ns, int64_t operations);
  // Leads from the begin of one slice to a moment in another one, which is not before it.
  void AddArrow(std::string_view name, const TraceSlice& from, const TraceSlice& to, int64_t at_ns);

  // The events, with commas between them.
  std::string Take() { return std::move(out_); }

 private:
  template <typename... Arguments>
  void Write(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }
  // A text, a whole number or a double; the first one of an object comes behind its brace.
  template <typename Value>
  void WriteValue(std::string_view key, const Value& value) {
    Write(R"({}"{}":)", out_.back() == '{' ? "" : ",", key);
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      AppendQuoted(value, out_);
    } else {
      Write("{}", value);
    }
  }
  void Begin(char phase, size_t process);
  void WriteTime(std::string_view key, int64_t ns);
  void WriteMetadata(std::string_view of, std::string_view name, size_t index,
                     std::optional<size_t> track);
  void WriteArguments(const TraceSlice& slice);
  void WriteRank(const TraceSlice& slice, const std::string& name, int64_t number);
  void WriteStep(const TraceSlice& slice);

  const TracedNodes& nodes_;
  const TraceRanks ranks_;
  const int64_t base_ns_;
  const int64_t first_pid_;
  size_t processes_ = 0, tracks_ = 0, arrows_ = 0;
  std::string out_;
};

// Bytes per second; nothing if the operation shares its launch, or has no factor.
std::optional<uint64_t> BusBandwidthOf(const collector::TracedCommunicator& communicator,
                                       const collector::TracedOperation& operation);

}  // namespace nccl_exporter::exporter
