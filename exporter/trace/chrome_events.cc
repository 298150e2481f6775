// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/chrome_events.h"

#include "proto/collective.h"
#include "proto/network_state.h"

namespace nccl_exporter::exporter {
namespace {

using collector::TracedCommunicator;
using collector::TracedDetail;

constexpr double kNsPerUs = 1e3, kBytesPerGb = 1e9;

double Us(int64_t ns) { return static_cast<double>(ns) / kNsPerUs; }

const collector::TracedNetworkOperation& NetworkOperationOf(const TraceSlice& step,
                                                            const TracedDetail& detail) {
  return detail.network_operations[detail.steps[step.operation].network_operation];
}

// The operation that a slice shows, or is a part of.
struct Shown {
  bool is_known = true;
  Function function = Function::kOther;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
};

Shown ShownBy(const TraceSlice& slice, const TracedCommunicator& communicator) {
  const auto shown = [](const auto& operation) {
    return Shown{true, operation.function, operation.sequence, operation.bytes};
  };
  if (slice.kind == SliceKind::kInFlight) return shown(communicator.in_flight[slice.operation]);
  if (slice.kind != SliceKind::kChannel && slice.kind != SliceKind::kStep)
    return shown(communicator.operations[slice.operation]);
  const TracedDetail& detail = *communicator.detail;
  const std::optional<size_t> operation = slice.kind == SliceKind::kChannel
                                              ? detail.channels[slice.operation].operation
                                              : NetworkOperationOf(slice, detail).operation;
  return operation ? shown(detail.operations[*operation]) : Shown{.is_known = false};
}

std::string NameOf(const TraceSlice& slice, const TracedNodes& nodes, const TraceRanks& ranks) {
  const TracedCommunicator& communicator = slice.place.CommunicatorIn(nodes);
  if (slice.kind == SliceKind::kWait)
    return "waits for " +
           ranks.TextOf(slice.place.ProcessIn(nodes), communicator, *slice.awaited_rank);
  if (slice.kind == SliceKind::kStep)
    return NetworkOperationOf(slice, *communicator.detail).is_send ? "step sent" : "step received";
  const std::string function(TraitsOf(ShownBy(slice, communicator).function).name);
  if (slice.kind == SliceKind::kCall) return function + " call";
  return slice.kind == SliceKind::kInFlight ? function + " in flight" : function;
}

}  // namespace

void ChromeEvents::Begin(char phase, size_t process) {
  if (!out_.empty()) out_ += ",\n";
  Write(R"({{"ph":"{}","pid":{})", phase, first_pid_ + static_cast<int64_t>(process));
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
  WriteValue("name", name);
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

void ChromeEvents::Add(const TraceSlice& slice) {
  Begin('X', slice.process);
  WriteValue("tid", slice.track);
  WriteTime("ts", slice.begin_ns - base_ns_);
  WriteTime("dur", slice.end_ns - slice.begin_ns);
  WriteValue("cat", "nccl");
  WriteValue("name", NameOf(slice, nodes_, ranks_));
  out_ += R"(,"args":{)";
  WriteArguments(slice);
  out_ += "}}";
}

void ChromeEvents::AddCount(std::string_view name, int64_t at_ns, int64_t operations) {
  Begin('C', processes_ - 1);
  WriteTime("ts", at_ns - base_ns_);
  WriteValue("name", name);
  Write(R"(,"args":{{"operations":{}}}}})", operations);
}

// Other files have flows of their own, with numbers that begin at 1 or at a correlation. An arrow
// ends in the slice around its time.
void ChromeEvents::AddArrow(std::string_view name, const TraceSlice& from, const TraceSlice& to,
                            int64_t at_ns) {
  const uint64_t flow = (uint64_t{1} << 40) + arrows_++;
  Begin('s', from.process);
  WriteValue("tid", from.track);
  WriteTime("ts", from.begin_ns - base_ns_);
  Write(R"(,"cat":"nccl","name":"{}","id":{}}})", name, flow);
  Begin('f', to.process);
  WriteValue("tid", to.track);
  WriteTime("ts", at_ns - base_ns_);
  Write(R"(,"bp":"e","cat":"nccl","name":"{}","id":{}}})", name, flow);
}

// The global rank, where it is known, and that of the communicator. A negative one is not known.
void ChromeEvents::WriteRank(const TraceSlice& slice, const std::string& name, int64_t number) {
  if (number < 0) return;
  const auto rank = static_cast<uint64_t>(number);
  const TracedCommunicator& communicator = slice.place.CommunicatorIn(nodes_);
  if (const auto global = ranks_.GlobalOf(slice.place.ProcessIn(nodes_), communicator, rank))
    WriteValue(name, *global);
  WriteValue("comm_" + name, rank);
}

void ChromeEvents::WriteArguments(const TraceSlice& slice) {
  const TracedCommunicator& communicator = slice.place.CommunicatorIn(nodes_);
  const Shown shown = ShownBy(slice, communicator);
  WriteValue("comm", fmt::format("{:016x}", communicator.id));
  if (shown.is_known) {
    WriteValue("collective", TraitsOf(shown.function).name);
    WriteRank(slice, "rank", static_cast<int64_t>(communicator.rank));
    WriteValue("ranks", communicator.ranks);
    WriteValue("sequence", shown.sequence);
    WriteValue("bytes", shown.bytes);
  }
  if (slice.kind == SliceKind::kStep) WriteStep(slice);
  if (slice.kind == SliceKind::kChannel) {
    const collector::TracedChannel& channel = communicator.detail->channels[slice.operation];
    WriteRank(slice, "peer", communicator.detail->operations[channel.operation].peer);
    WriteValue("channel", channel.channel);
  } else if (slice.kind == SliceKind::kInFlight) {
    const collector::TracedInFlight& in_flight = communicator.in_flight[slice.operation];
    WriteRank(slice, "peer", in_flight.peer);
    WriteValue("parts_done", in_flight.parts_done);
    WriteValue("parts_announced", in_flight.parts_announced);
  } else if (slice.kind == SliceKind::kKernel) {
    const collector::TracedOperation& timed = communicator.operations[slice.operation];
    WriteValue("launch_members", timed.members);
    if (const auto bandwidth = BusBandwidthOf(communicator, timed))
      WriteValue("bus_bandwidth_gb_per_s", static_cast<double>(*bandwidth) / kBytesPerGb);
  }
  if (slice.awaited_rank) WriteRank(slice, "last_rank", static_cast<int64_t>(*slice.awaited_rank));
  if (slice.uncertainty_ns) WriteValue("uncertainty_us", Us(*slice.uncertainty_ns));
}

// As the metrics have them: a receive that is not posted waits for its own GPU.
void ChromeEvents::WriteStep(const TraceSlice& slice) {
  const TracedDetail& detail = *slice.place.CommunicatorIn(nodes_).detail;
  const collector::TracedNetworkOperation& transfers = NetworkOperationOf(slice, detail);
  const auto us = [&](NetworkState state) {
    return Us(detail.steps[slice.operation].state_ns[static_cast<size_t>(state)]);
  };
  WriteValue("channel", transfers.channel);
  WriteRank(slice, "peer", transfers.peer);
  WriteValue("step_bytes_at_most", transfers.step_bytes);
  WriteValue("waits_for_gpu_us",
             us(NetworkState::kGpu) + (transfers.is_send ? 0 : us(NetworkState::kPeer)));
  if (transfers.is_send) WriteValue("waits_for_peer_us", us(NetworkState::kPeer));
  WriteValue("waits_for_network_us", us(NetworkState::kNetwork));
  if (!transfers.is_send) WriteValue("waits_for_flush_us", us(NetworkState::kFlush));
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
