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

namespace nccl_exporter::exporter {

// Times are nanoseconds since the epoch, by the clock of the first node.
struct TraceSlice {
  size_t process = 0;
  size_t track = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  size_t number = 0;  // of what it shows, in the list of its kind
};

class ChromeEvents {
 public:
  // Times are written as microseconds after `base_ns`.
  explicit ChromeEvents(int64_t base_ns) : base_ns_(base_ns) {}

  // Processes, and tracks of the latest one, are shown in this order. Return their numbers.
  size_t AddProcess(std::string_view name);
  size_t AddTrack(std::string_view name);

  // Slices of a track come in the order of their begin, outer ones first. `write_arguments` adds
  // them by WriteArgument().
  template <typename WriteArguments>
  void Add(const TraceSlice& slice, std::string_view name, WriteArguments write_arguments) {
    BeginSlice(slice, name);
    write_arguments();
    out_ += "}}";
  }
  // A text, a whole number or a double.
  template <typename Value>
  void WriteArgument(std::string_view key, const Value& value) {
    Write(R"({}"{}":)", out_.back() == '{' ? "" : ",", key);
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      AppendQuoted(value, out_);
    } else {
      Write("{}", value);
    }
  }
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
  void Begin(char phase, size_t process);
  void BeginSlice(const TraceSlice& slice, std::string_view name);
  void WriteTime(std::string_view key, int64_t ns);
  void WriteMetadata(std::string_view of, std::string_view name, size_t index,
                     std::optional<size_t> track);

  const int64_t base_ns_;
  size_t processes_ = 0, tracks_ = 0, arrows_ = 0;
  std::string out_;
};

}  // namespace nccl_exporter::exporter
