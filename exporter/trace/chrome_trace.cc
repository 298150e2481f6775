// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/chrome_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "exporter/text/utf8.h"
#include "exporter/trace/trace_section.h"
#include "proto/collective.h"
#include "proto/network_state.h"

namespace nccl_exporter::exporter {
namespace {

using collector::TracedCommunicator;
using collector::TracedDetail;
using collector::TracedNetworkOperation;

constexpr double kNsPerUs = 1e3, kBytesPerGb = 1e9;

// The operation that a slice shows, or is a part of.
struct Shown {
  bool is_known = true;
  Function function = Function::kOther;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};

template <typename Operation>
Shown ShownOf(const Operation& operation) {
  return {.function = operation.function, .sequence = operation.sequence, .bytes = operation.bytes};
}

Shown ShownBy(const TimelineSlice& slice, const TracedCommunicator& communicator) {
  if (slice.kind == SliceKind::kInFlight) return ShownOf(communicator.in_flight[slice.operation]);
  if (slice.kind != SliceKind::kChannel && slice.kind != SliceKind::kStep)
    return ShownOf(communicator.operations[slice.operation]);
  const TracedDetail& detail = *communicator.detail;
  if (slice.kind == SliceKind::kChannel)
    return ShownOf(detail.operations[detail.channels[slice.operation].operation]);
  const auto& operation =
      detail.network_operations[detail.steps[slice.operation].network_operation].operation;
  return operation ? ShownOf(detail.operations[*operation]) : Shown{.is_known = false};
}

class EventWriter {
 public:
  EventWriter(const Timeline& timeline, const TracedNodes& nodes, int64_t base_ns,
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
  // A text, a whole number or a double; the first one of an object comes behind its brace.
  template <typename Value>
  void AddValue(std::string_view key, const Value& value) {
    Add(R"({}"{}":)", out_.back() == '{' ? "" : ",", key);
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      AppendQuoted(value, out_);
    } else {
      Add("{}", value);
    }
  }

  void NameProcess(size_t process) {
    if (!out_.empty()) out_ += ",\n";
    Add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{)", PidOf(process));
    AddValue("name", timeline_.processes[process]);
    Add("}}}},\n");
    Add(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})",
        PidOf(process), process);
  }
  void NameTrack(size_t track) {
    if (timeline_.tracks[track].is_counter) return;
    Begin('M', track);
    out_ += R"(,"name":"thread_name","args":{)";
    AddValue("name", timeline_.tracks[track].name);
    out_ += "}}";
    Begin('M', track);
    Add(R"(,"name":"thread_sort_index","args":{{"sort_index":{}}}}})", track);
  }
  void AddSlice(const TimelineSlice& slice) {
    const Shown shown = ShownBy(slice, slice.place.CommunicatorIn(nodes_));
    Begin('X', slice.track);
    AddTime("ts", slice.begin_ns - base_ns_);
    AddTime("dur", slice.end_ns - slice.begin_ns);
    AddValue("cat", "nccl");
    AddValue("name", NameOfSlice(slice, shown));
    out_ += R"(,"args":{)";
    AddArguments(slice, shown);
    out_ += "}}";
  }
  std::string NameOfSlice(const TimelineSlice& slice, const Shown& shown) const {
    const TracedCommunicator& communicator = slice.place.CommunicatorIn(nodes_);
    const std::string function(TraitsOf(shown.function).name);
    switch (slice.kind) {
      case SliceKind::kWait:
        return "waits for " + timeline_.ranks.TextOf(slice.place.ProcessIn(nodes_), communicator,
                                                     *slice.awaited_rank);
      case SliceKind::kStep:
        return NetworkOperationOf(slice).is_send ? "step sent" : "step received";
      case SliceKind::kCall:
        return function + " call";
      case SliceKind::kInFlight:
        return function + " in flight";
      case SliceKind::kKernel:
      case SliceKind::kChannel:
        break;
    }
    return function;
  }
  const TracedNetworkOperation& NetworkOperationOf(const TimelineSlice& step) const {
    const TracedDetail& detail = *step.place.CommunicatorIn(nodes_).detail;
    return detail.network_operations[detail.steps[step.operation].network_operation];
  }

  // The global rank, where it is known, and that of the communicator. A negative one is not known.
  void AddRank(const TimelineSlice& slice, const std::string& name, int64_t number) {
    if (number < 0) return;
    const auto rank = static_cast<uint64_t>(number);
    const TracedCommunicator& communicator = slice.place.CommunicatorIn(nodes_);
    if (const auto global =
            timeline_.ranks.GlobalOf(slice.place.ProcessIn(nodes_), communicator, rank))
      AddValue(name, *global);
    AddValue("comm_" + name, rank);
  }
  void AddArguments(const TimelineSlice& slice, const Shown& shown) {
    const TracedCommunicator& communicator = slice.place.CommunicatorIn(nodes_);
    AddValue("comm", fmt::format("{:016x}", communicator.id));
    if (shown.is_known) {
      AddValue("collective", TraitsOf(shown.function).name);
      AddRank(slice, "rank", static_cast<int64_t>(communicator.rank));
      AddValue("ranks", communicator.ranks);
      AddValue("sequence", shown.sequence);
      AddValue("bytes", shown.bytes);
    }
    if (slice.kind == SliceKind::kChannel) AddChannelArguments(slice, *communicator.detail);
    if (slice.kind == SliceKind::kStep) AddStepArguments(slice, *communicator.detail);
    if (slice.kind == SliceKind::kInFlight) {
      const collector::TracedInFlight& in_flight = communicator.in_flight[slice.operation];
      AddRank(slice, "peer", in_flight.peer);
      AddValue("parts_done", in_flight.parts_done);
      AddValue("parts_announced", in_flight.parts_announced);
    } else if (slice.kind == SliceKind::kKernel) {
      const collector::TracedOperation& timed = communicator.operations[slice.operation];
      AddValue("launch_members", timed.members);
      if (const auto bandwidth = BusBandwidthOf(communicator, timed))
        AddValue("bus_bandwidth_gb_per_s", static_cast<double>(*bandwidth) / kBytesPerGb);
    }
    if (slice.awaited_rank) AddRank(slice, "last_rank", static_cast<int64_t>(*slice.awaited_rank));
    if (slice.uncertainty_ns) AddUs("uncertainty_us", *slice.uncertainty_ns);
  }
  void AddUs(std::string_view name, int64_t ns) {
    AddValue(name, static_cast<double>(ns) / kNsPerUs);
  }
  void AddChannelArguments(const TimelineSlice& slice, const TracedDetail& detail) {
    const collector::TracedChannel& channel = detail.channels[slice.operation];
    AddRank(slice, "peer", detail.operations[channel.operation].peer);
    AddValue("channel", channel.channel);
  }
  // As the metrics have them: a receive that is not posted waits for its own GPU.
  void AddStepArguments(const TimelineSlice& slice, const TracedDetail& detail) {
    const TracedNetworkOperation& transfers = NetworkOperationOf(slice);
    const auto state_ns = [&](NetworkState state) {
      return detail.steps[slice.operation].state_ns[static_cast<size_t>(state)];
    };
    AddValue("channel", transfers.channel);
    AddRank(slice, "peer", transfers.peer);
    AddValue("step_bytes_at_most", transfers.step_bytes);
    const int64_t not_posted_ns = transfers.is_send ? 0 : state_ns(NetworkState::kPeer);
    AddUs("waits_for_gpu_us", state_ns(NetworkState::kGpu) + not_posted_ns);
    if (transfers.is_send) AddUs("waits_for_peer_us", state_ns(NetworkState::kPeer));
    AddUs("waits_for_network_us", state_ns(NetworkState::kNetwork));
    if (!transfers.is_send) AddUs("waits_for_flush_us", state_ns(NetworkState::kFlush));
  }

  void AddCount(const TimelineCount& count) {
    Begin('C', count.track);
    AddTime("ts", count.at_ns - base_ns_);
    AddValue("name", timeline_.tracks[count.track].name);
    Add(R"(,"args":{{"operations":{}}}}})", count.value);
  }
  // An arrow begins with the slice that it comes from; it ends in the slice around its time. Other
  // files have flows of their own, with numbers that begin at 1 or at a correlation.
  void AddArrow(size_t number) {
    constexpr uint64_t kFirstFlow = uint64_t{1} << 40;
    const TimelineArrow& arrow = timeline_.arrows[number];
    const std::string_view name = arrow.is_call ? "call" : "last rank";
    const TimelineSlice& from = timeline_.slices[arrow.from];
    Begin('s', from.track);
    AddTime("ts", from.begin_ns - base_ns_);
    Add(R"(,"cat":"nccl","name":"{}","id":{}}})", name, kFirstFlow + number);
    Begin('f', timeline_.slices[arrow.to].track);
    AddTime("ts", arrow.at_ns - base_ns_);
    Add(R"(,"bp":"e","cat":"nccl","name":"{}","id":{}}})", name, kFirstFlow + number);
  }

  const Timeline& timeline_;
  const TracedNodes& nodes_;
  const int64_t base_ns_;
  const int64_t first_pid_;
  std::string out_;
};

}  // namespace

std::string ChromeEvents(const Timeline& timeline, const TracedNodes& nodes, int64_t base_ns,
                         int64_t first_pid) {
  return EventWriter(timeline, nodes, base_ns, first_pid).Write();
}

std::string ChromeTrace(const Timeline& timeline, const TracedNodes& nodes) {
  return fmt::format("{{\"baseTimeNanoseconds\":{},\"displayTimeUnit\":\"ns\",\n\"{}\":{},\n",
                     timeline.base_ns, kTraceKey, TraceSection(nodes)) +
         "\"traceEvents\":[\n" + ChromeEvents(timeline, nodes, timeline.base_ns, 1) + "\n]}\n";
}

std::optional<uint64_t> BusBandwidthOf(const TracedCommunicator& communicator,
                                       const collector::TracedOperation& operation) {
  if (operation.members != 1 || operation.stop_ns <= operation.start_ns) return std::nullopt;
  const uint64_t bandwidth =
      BusBandwidth(operation.function, operation.bytes, static_cast<uint32_t>(communicator.ranks),
                   static_cast<uint64_t>(operation.stop_ns - operation.start_ns));
  return bandwidth == 0 ? std::nullopt : std::optional(bandwidth);
}

}  // namespace nccl_exporter::exporter
