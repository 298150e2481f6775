// SPDX-License-Identifier: Apache-2.0
// Fields() names the parts of each kind of object once, for the writer and for the reader. Rows,
// which are many, have no names in the file.
#include "exporter/trace/trace_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "exporter/text/number_in.h"
#include "exporter/text/utf8.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {
namespace {

using collector::kMostTraceNs;
using collector::NodeTrace;
using nlohmann::json;

// Names and labels are far shorter.
constexpr size_t kTextLimitBytes = 4096;

// Thrown for text that no trace of this program has.
struct Foreign {
  std::string what;
};

constexpr const auto& RowsOf(Function) { return kFunctions; }
constexpr const auto& RowsOf(TimingSource) { return kTimingSources; }
constexpr const auto& RowsOf(TimingReason) { return kTimingReasons; }

using Losses = std::array<uint64_t, kLossCount>;

template <typename Value, typename Of>
concept Is = std::same_as<std::remove_const_t<Value>, Of>;

void Fields(auto& io, Is<collector::TracedOperation> auto& one) {
  io.Row(one.function, one.sequence, one.call_ns, one.start_ns, one.stop_ns, one.delivered_ns,
         one.bytes, one.members);
}

void Fields(auto& io, Is<collector::TracedInFlight> auto& one) {
  io.Row(one.function, one.sequence, one.call_ns, one.bytes, one.peer, one.parts_announced,
         one.parts_done);
}

uint64_t HexIn(const std::string& text) {
  const std::optional<uint64_t> number = NumberIn<uint64_t>(text, 16);
  if (!number) throw Foreign{"a communicator has no number"};
  return *number;
}

void Fields(auto& io, Is<collector::TracedCommunicator> auto& one) {
  std::string id = fmt::format("{:016x}", one.id);
  io.Object("has_identity", one.has_identity, "comm", id, "comm_name", one.name, "rank", one.rank,
            "ranks", one.ranks, "api_version", one.api_version, "nccl_version", one.nccl_version,
            "gpu", one.gpu_index, "gpu_uuid", one.gpu_uuid, "timing_source", one.timing_source,
            "timing_reason", one.timing_reason, "whole_since_ns", one.whole_since_ns, "overwritten",
            one.overwritten, "beyond_limit", one.beyond_limit, "untimed", one.untimed,
            "in_flight_is_known", one.in_flight_is_known, "started", one.started, "in_flight",
            one.in_flight, "operations", one.operations);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(one)>>) one.id = HexIn(id);
}

void Fields(auto& io, Is<collector::TracedProcess> auto& process) {
  io.Object("pid", process.pid, "uid", process.uid, "executable", process.executable, "global_rank",
            process.global_rank, "nccl_job", process.job, "namespace", process.name_space, "pod",
            process.pod, "is_alive", process.is_alive, "losses", process.losses, "communicators",
            process.communicators);
}

void Fields(auto& io, Is<NodeTrace> auto& node) {
  io.Object("node", node.node, "realtime_offset_ns", node.realtime_offset_ns, "begin_ns",
            node.begin_ns, "end_ns", node.end_ns, "is_polled", node.is_polled, "processes",
            node.processes);
}

// Appends JSON. Operations are millions, so there is no tree of it.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void Row(const auto&... values) {
    out_ += '[';
    ((Write(values), out_ += ','), ...);
    out_.back() = ']';
  }
  // Keys and values in turn.
  void Object(const auto&... members) {
    out_ += '{';
    AddMembers(members...);
    out_.back() = '}';
  }
  void Write(const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<Value>) {
      fmt::format_to(std::back_inserter(out_), "{}", value);
    } else if constexpr (std::is_enum_v<Value>) {
      Write(std::string(RowIn(RowsOf(value), value).name));
    } else {
      Fields(*this, value);
    }
  }
  void Write(const std::string& text) { AppendQuoted(ValidUtf8(text, kTextLimitBytes), out_); }
  void Write(const Losses& losses) {
    json named = json::object();
    for (size_t i = 0; i < kLossCount; ++i) {
      if (losses[i] != 0) named[std::string(kLosses[i].reason)] = losses[i];
    }
    out_ += named.dump();
  }
  template <typename Value>
  void Write(const std::optional<Value>& value) {
    value ? Write(*value) : void(out_ += "null");
  }
  template <typename Value>
  void Write(const std::vector<Value>& list) {
    out_ += '[';
    for (const Value& value : list) Write(value), out_ += ',';
    if (!list.empty()) out_.pop_back();
    out_ += ']';
  }

 private:
  void AddMembers() {}
  void AddMembers(std::string_view key, const auto& value, const auto&... others) {
    fmt::format_to(std::back_inserter(out_), "\"{}\":", key);
    Write(value);
    out_ += ',';
    AddMembers(others...);
  }

  std::string& out_;
};

// Reads one value, which may be of any kind. Throws Foreign or json::exception.
class Reader {
 public:
  explicit Reader(const json& value) : value_(value) {}

  void Row(auto&... values) {
    size_t i = 0;
    (Reader(value_.at(i++)).Read(values), ...);
  }
  // Keys and values in turn. A value that is missing is null.
  void Object() {}
  void Object(const char* key, auto& value, auto&&... others) {
    static const json kNull;
    Reader(value_.contains(key) ? value_.at(key) : kNull).Read(value);
    Object(others...);
  }
  void Read(auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    // The conversion of a fraction is undefined where it is out of range.
    if (std::is_integral_v<Value> && value_.is_number_float())
      throw Foreign{"it has a fraction in place of a count or a time"};
    if constexpr (std::is_same_v<Value, int64_t>) {
      value = std::clamp(value_.get<int64_t>(), -kMostTraceNs, kMostTraceNs);  // a time
    } else if constexpr (std::is_arithmetic_v<Value>) {
      value = value_.get<Value>();
    } else if constexpr (std::is_enum_v<Value>) {
      const auto& rows = RowsOf(value);
      const auto row = std::ranges::find(rows, value_.get<std::string>(),
                                         [](const auto& one) { return one.name; });
      if (row == rows.end()) throw Foreign{"it has an unknown collective or reason"};
      value = row->id;
    } else {
      Fields(*this, value);
    }
  }
  // The file may come from anybody, and a summary of it goes to a terminal.
  void Read(std::string& text) { text = ValidUtf8(value_.get<std::string>(), kTextLimitBytes); }
  void Read(Losses& losses) {
    const auto& known = value_.get_ref<const json::object_t&>();
    for (size_t i = 0; i < kLossCount; ++i) {
      const auto loss = known.find(std::string(kLosses[i].reason));
      losses[i] = 0;
      if (loss != known.end()) Reader(loss->second).Read(losses[i]);
    }
  }
  template <typename Value>
  void Read(std::optional<Value>& value) {
    if (!value_.is_null()) Read(value.emplace());
  }
  template <typename Value>
  void Read(std::vector<Value>& list) {
    for (const json& one : value_.get_ref<const json::array_t&>())
      Reader(one).Read(list.emplace_back());
  }

 private:
  const json& value_;
};

// The events of a file are as many as operations, and are not needed.
json WithoutEvents(std::string_view text, size_t most_values) {
  bool skips = false;
  size_t values = 0;
  const auto keep = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1) skips = value == "traceEvents";
    if (skips && depth != 0) return false;
    if (++values > most_values) throw Foreign{"it has more values than a trace"};
    return true;
  };
  return json::parse(text, keep);
}

}  // namespace

std::string TraceSection(const std::vector<NodeTrace>& nodes) {
  std::string out = fmt::format("{{\"version\":{},\"nodes\":", kTraceVersion);
  Writer(out).Write(nodes);
  return out + "}";
}

std::vector<NodeTrace> ReadTraceSection(std::string_view text, std::string& fault,
                                        size_t most_values) {
  try {
    const json file = WithoutEvents(text, most_values);
    const auto section = file.find(kTraceKey);
    if (!file.is_object() || section == file.end())
      throw Foreign{"it is no trace of nccl-exporter in Chrome's format"};
    if (section->at("version") != kTraceVersion) throw Foreign{"another version wrote it"};
    std::vector<NodeTrace> nodes;
    Reader(section->at("nodes")).Read(nodes);
    if (nodes.empty()) throw Foreign{"it has no node"};
    return nodes;
  } catch (const Foreign& foreign) {
    fault = foreign.what;
  } catch (const json::exception&) {
    fault = "it is no trace of nccl-exporter in Chrome's format, or damaged";
  }
  return {};
}

}  // namespace nccl_exporter::exporter
