// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/trace_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "exporter/text/utf8.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {
namespace {

using collector::DetailedOperation;
using collector::NodeTrace;
using collector::TracedChannel;
using collector::TracedCommunicator;
using collector::TracedDetail;
using collector::TracedInFlight;
using collector::TracedNetworkOperation;
using collector::TracedOperation;
using collector::TracedProcess;
using collector::TracedStep;
using nlohmann::json;

// Names and labels are far shorter.
constexpr size_t kTextLimitBytes = 4096;

std::string Text(const std::string& text) { return ValidUtf8(text, kTextLimitBytes); }

void Append(const TracedOperation& operation, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[\"{}\",{},{},{},{},{},{},{}]",
                 TraitsOf(operation.function).name, operation.sequence, operation.call_ns,
                 operation.start_ns, operation.stop_ns, operation.delivered_ns, operation.bytes,
                 operation.members);
}

void Append(const TracedInFlight& operation, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[\"{}\",{},{},{},{},{},{}]",
                 TraitsOf(operation.function).name, operation.sequence, operation.call_ns,
                 operation.bytes, operation.peer, operation.parts_announced, operation.parts_done);
}

void Append(const DetailedOperation& operation, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[\"{}\",{},{},{},{},{}]",
                 TraitsOf(operation.function).name, operation.sequence, operation.call_ns,
                 operation.bytes, operation.peer, operation.ticket);
}

void Append(const TracedChannel& channel, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[{},{},{},{}]", channel.operation, channel.channel,
                 channel.start_ns, channel.stop_ns);
}

void Append(const TracedNetworkOperation& operation, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[{},{},{},{},{}]",
                 operation.operation ? static_cast<int64_t>(*operation.operation) : -1,
                 operation.is_send, operation.channel, operation.peer, operation.step_bytes);
}

void Append(const TracedStep& step, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[{},{},{}]", step.network_operation, step.end_ns,
                 fmt::join(step.state_ns, ","));
}

void Append(const TracedCommunicator& communicator, std::string& out);
void Append(const TracedProcess& process, std::string& out);
void Append(const NodeTrace& node, std::string& out);

template <typename Entry>
void AppendList(std::string_view key, const std::vector<Entry>& entries, std::string& out) {
  fmt::format_to(std::back_inserter(out), "\"{}\":[", key);
  for (const Entry& entry : entries) {
    Append(entry, out);
    out += ',';
  }
  if (!entries.empty()) out.pop_back();
  out += ']';
}

// An object up to its last member, which follows: lists are long, and are written as text.
void AppendOpen(const json& object, std::string& out) {
  out += object.dump();
  out.back() = ',';
}

void Append(const TracedDetail& detail, std::string& out) {
  AppendOpen({{"has_steps", detail.has_steps},
              {"lost_operations", detail.lost_operations},
              {"lost_parts", detail.lost_parts},
              {"orphans", detail.orphans},
              {"beyond_limit", detail.beyond_limit}},
             out);
  AppendList("operations", detail.operations, out);
  out += ',';
  AppendList("channels", detail.channels, out);
  out += ',';
  AppendList("network_operations", detail.network_operations, out);
  out += ',';
  AppendList("steps", detail.steps, out);
  out += '}';
}

void Append(const TracedCommunicator& communicator, std::string& out) {
  AppendOpen({{"has_identity", communicator.has_identity},
              {"comm", fmt::format("{:016x}", communicator.id)},
              {"comm_name", Text(communicator.name)},
              {"rank", communicator.rank},
              {"ranks", communicator.ranks},
              {"api_version", communicator.api_version},
              {"nccl_version", communicator.nccl_version},
              {"gpu", communicator.gpu_index},
              {"gpu_uuid", Text(communicator.gpu_uuid)},
              {"timing_source", NameOf(communicator.timing_source)},
              {"timing_reason", NameOf(communicator.timing_reason)},
              {"whole_since_ns", communicator.whole_since_ns},
              {"overwritten", communicator.overwritten},
              {"beyond_limit", communicator.beyond_limit},
              {"untimed", communicator.untimed ? json(*communicator.untimed) : json()},
              {"in_flight_is_known", communicator.in_flight_is_known}},
             out);
  AppendList("in_flight", communicator.in_flight, out);
  out += ',';
  AppendList("operations", communicator.operations, out);
  if (communicator.detail) {
    out += R"(,"detail":)";
    Append(*communicator.detail, out);
  }
  out += '}';
}

void Append(const TracedProcess& process, std::string& out) {
  json losses = json::object();
  for (size_t i = 0; i < kLossCount; ++i) {
    if (process.losses[i] != 0) losses[std::string(kLosses[i].reason)] = process.losses[i];
  }
  AppendOpen({{"pid", process.pid},
              {"uid", process.uid},
              {"executable", Text(process.executable)},
              {"global_rank", Text(process.global_rank)},
              {"nccl_job", Text(process.job)},
              {"namespace", Text(process.name_space)},
              {"pod", Text(process.pod)},
              {"is_alive", process.is_alive},
              {"detail_fault", Text(process.detail_fault)},
              {"losses", std::move(losses)}},
             out);
  AppendList("communicators", process.communicators, out);
  out += '}';
}

void Append(const NodeTrace& node, std::string& out) {
  AppendOpen({{"node", Text(node.node)},
              {"realtime_offset_ns", node.realtime_offset_ns},
              {"begin_ns", node.begin_ns},
              {"end_ns", node.end_ns},
              {"is_polled", node.is_polled}},
             out);
  AppendList("processes", node.processes, out);
  out += '}';
}

// What no trace of this program has.
struct Foreign {
  std::string what;
};

int64_t TimeIn(const json& value) {
  return std::clamp(value.get<int64_t>(), -collector::kMostTraceNs, collector::kMostTraceNs);
}

template <typename Rows>
auto IdOf(const Rows& rows, const json& name, std::string_view what) {
  const std::string text = name.get<std::string>();
  for (const auto& row : rows) {
    if (row.name == text) return row.id;
  }
  throw Foreign{fmt::format("it has an unknown {}", what)};
}

TracedOperation OperationIn(const json& value) {
  return {.function = IdOf(kFunctions, value.at(0), "collective"),
          .sequence = value.at(1).get<uint64_t>(),
          .call_ns = TimeIn(value.at(2)),
          .start_ns = TimeIn(value.at(3)),
          .stop_ns = TimeIn(value.at(4)),
          .delivered_ns = TimeIn(value.at(5)),
          .bytes = value.at(6).get<uint64_t>(),
          .members = value.at(7).get<uint64_t>()};
}

TracedInFlight InFlightIn(const json& value) {
  return {.function = IdOf(kFunctions, value.at(0), "collective"),
          .sequence = value.at(1).get<uint64_t>(),
          .call_ns = TimeIn(value.at(2)),
          .bytes = value.at(3).get<uint64_t>(),
          .peer = value.at(4).get<int>(),
          .parts_announced = value.at(5).get<uint32_t>(),
          .parts_done = value.at(6).get<uint32_t>()};
}

// A place in a list of so many.
size_t PlaceIn(const json& value, size_t size) {
  const auto place = value.get<uint64_t>();
  if (place >= size) throw Foreign{"a part of an operation names no operation"};
  return place;
}

TracedDetail DetailIn(const json& value) {
  TracedDetail detail;
  detail.has_steps = value.at("has_steps").get<bool>();
  detail.lost_operations = value.at("lost_operations").get<uint64_t>();
  detail.lost_parts = value.at("lost_parts").get<uint64_t>();
  detail.orphans = value.at("orphans").get<uint64_t>();
  detail.beyond_limit = value.at("beyond_limit").get<uint64_t>();
  for (const json& one : value.at("operations")) {
    detail.operations.push_back({.ticket = one.at(5).get<uint64_t>(),
                                 .function = IdOf(kFunctions, one.at(0), "collective"),
                                 .sequence = one.at(1).get<uint64_t>(),
                                 .call_ns = TimeIn(one.at(2)),
                                 .bytes = one.at(3).get<uint64_t>(),
                                 .peer = one.at(4).get<int>()});
  }
  for (const json& one : value.at("channels")) {
    detail.channels.push_back({.operation = PlaceIn(one.at(0), detail.operations.size()),
                               .channel = one.at(1).get<uint32_t>(),
                               .start_ns = TimeIn(one.at(2)),
                               .stop_ns = TimeIn(one.at(3))});
  }
  for (const json& one : value.at("network_operations")) {
    TracedNetworkOperation& operation = detail.network_operations.emplace_back();
    if (one.at(0) != -1) operation.operation = PlaceIn(one.at(0), detail.operations.size());
    operation.is_send = one.at(1).get<bool>();
    operation.channel = one.at(2).get<uint32_t>();
    operation.peer = one.at(3).get<int>();
    operation.step_bytes = one.at(4).get<uint64_t>();
  }
  for (const json& one : value.at("steps")) {
    TracedStep& step = detail.steps.emplace_back();
    step.network_operation = PlaceIn(one.at(0), detail.network_operations.size());
    step.end_ns = TimeIn(one.at(1));
    for (size_t i = 0; i < step.state_ns.size(); ++i) {
      step.state_ns[i] = std::clamp<int64_t>(one.at(2 + i).get<int64_t>(), 0,
                                             collector::kMostTraceNs / kNetworkStateCount);
    }
  }
  return detail;
}

// The file may come from anybody, and a summary of it goes to a terminal.
std::string TextIn(const json& value) { return Text(value.get<std::string>()); }

uint64_t HexIn(const json& value) {
  const std::string text = value.get<std::string>();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw Foreign{"a communicator has no number"};
  return number;
}

TracedCommunicator CommunicatorIn(const json& value) {
  TracedCommunicator communicator;
  communicator.has_identity = value.at("has_identity").get<bool>();
  communicator.id = HexIn(value.at("comm"));
  communicator.name = TextIn(value.at("comm_name"));
  communicator.rank = value.at("rank").get<uint64_t>();
  communicator.ranks = value.at("ranks").get<uint64_t>();
  communicator.api_version = value.at("api_version").get<int>();
  communicator.nccl_version = value.at("nccl_version").get<int>();
  communicator.gpu_index = value.at("gpu").get<int>();
  communicator.gpu_uuid = TextIn(value.at("gpu_uuid"));
  communicator.timing_source = IdOf(kTimingSources, value.at("timing_source"), "timing source");
  communicator.timing_reason = IdOf(kTimingReasons, value.at("timing_reason"), "timing reason");
  communicator.whole_since_ns = TimeIn(value.at("whole_since_ns"));
  communicator.overwritten = value.at("overwritten").get<uint64_t>();
  communicator.beyond_limit = value.at("beyond_limit").get<uint64_t>();
  if (!value.at("untimed").is_null()) communicator.untimed = value.at("untimed").get<uint64_t>();
  communicator.in_flight_is_known = value.at("in_flight_is_known").get<bool>();
  for (const json& one : value.at("in_flight")) communicator.in_flight.push_back(InFlightIn(one));
  for (const json& one : value.at("operations"))
    communicator.operations.push_back(OperationIn(one));
  if (const auto detail = value.find("detail"); detail != value.end())
    communicator.detail = DetailIn(*detail);
  return communicator;
}

TracedProcess ProcessIn(const json& value) {
  TracedProcess process;
  process.pid = value.at("pid").get<uint64_t>();
  process.uid = value.at("uid").get<uint64_t>();
  process.executable = TextIn(value.at("executable"));
  process.global_rank = TextIn(value.at("global_rank"));
  process.job = TextIn(value.at(value.contains("nccl_job") ? "nccl_job" : "slurm_job_id"));
  process.name_space = TextIn(value.at("namespace"));
  process.pod = TextIn(value.at("pod"));
  process.is_alive = value.at("is_alive").get<bool>();
  process.detail_fault = Text(value.value("detail_fault", ""));
  for (const auto& [reason, count] : value.at("losses").items()) {
    for (size_t i = 0; i < kLossCount; ++i) {
      if (kLosses[i].reason == reason) process.losses[i] = count.get<uint64_t>();
    }
  }
  for (const json& one : value.at("communicators"))
    process.communicators.push_back(CommunicatorIn(one));
  return process;
}

NodeTrace NodeIn(const json& value) {
  NodeTrace node;
  node.node = TextIn(value.at("node"));
  node.realtime_offset_ns = TimeIn(value.at("realtime_offset_ns"));
  node.begin_ns = TimeIn(value.at("begin_ns"));
  node.end_ns = TimeIn(value.at("end_ns"));
  node.is_polled = value.at("is_polled").get<bool>();
  for (const json& one : value.at("processes")) node.processes.push_back(ProcessIn(one));
  return node;
}

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
  std::string out = fmt::format("{{\"version\":{},", kTraceVersion);
  AppendList("nodes", nodes, out);
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
    for (const json& one : section->at("nodes")) nodes.push_back(NodeIn(one));
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
