// SPDX-License-Identifier: Apache-2.0
// Name and arguments of a slice. Pure functions, for any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/trace/timeline.h"
#include "proto/collective.h"
#include "proto/network_state.h"

namespace nccl_exporter::exporter {

inline const collector::TracedCommunicator& CommunicatorOf(
    const TimelineSlice& slice, const std::vector<collector::NodeTrace>& nodes) {
  return nodes[slice.node].processes[slice.process].communicators[slice.communicator];
}

inline bool IsDetail(const TimelineSlice& slice) {
  return slice.kind == SliceKind::kChannel || slice.kind == SliceKind::kStep;
}

inline const collector::TracedNetworkOperation& NetworkOperationOf(
    const TimelineSlice& step, const std::vector<collector::NodeTrace>& nodes) {
  const collector::TracedDetail& detail = *CommunicatorOf(step, nodes).detail;
  return detail.network_operations[detail.steps[step.operation].network_operation];
}

// The operation that a channel or a step is a part of; nullptr: not known, or the slice is neither.
inline const collector::DetailedOperation* DetailedOperationOf(
    const TimelineSlice& slice, const std::vector<collector::NodeTrace>& nodes) {
  if (!IsDetail(slice)) return nullptr;
  const collector::TracedDetail& detail = *CommunicatorOf(slice, nodes).detail;
  if (slice.kind == SliceKind::kChannel)
    return &detail.operations[detail.channels[slice.operation].operation];
  const std::optional<size_t> operation = NetworkOperationOf(slice, nodes).operation;
  return operation ? &detail.operations[*operation] : nullptr;
}

inline Function FunctionOf(const TimelineSlice& slice,
                           const std::vector<collector::NodeTrace>& nodes) {
  const collector::TracedCommunicator& communicator = CommunicatorOf(slice, nodes);
  if (const collector::DetailedOperation* const operation = DetailedOperationOf(slice, nodes))
    return operation->function;
  if (IsDetail(slice)) return Function::kOther;
  return slice.kind == SliceKind::kInFlight ? communicator.in_flight[slice.operation].function
                                            : communicator.operations[slice.operation].function;
}

inline const collector::TracedProcess& ProcessOf(const TimelineSlice& slice,
                                                 const std::vector<collector::NodeTrace>& nodes) {
  return nodes[slice.node].processes[slice.process];
}

inline std::string SliceName(const TimelineSlice& slice,
                             const std::vector<collector::NodeTrace>& nodes,
                             const TraceRanks& ranks) {
  if (slice.kind == SliceKind::kWait)
    return "waits for " + ranks.TextOf(ProcessOf(slice, nodes), CommunicatorOf(slice, nodes),
                                       *slice.awaited_rank);
  if (slice.kind == SliceKind::kStep)
    return NetworkOperationOf(slice, nodes).is_send ? "step sent" : "step received";
  const std::string function(TraitsOf(FunctionOf(slice, nodes)).name);
  if (slice.kind == SliceKind::kCall) return function + " call";
  return slice.kind == SliceKind::kInFlight ? function + " in flight" : function;
}

// Calls `visit` with the name and the value of each argument: a text, a whole number or a double.
// `rank`, `peer` and `last_rank` are global ranks, and left out where these are not known; those
// that begin with `comm_` are ranks of the communicator.
template <typename Visit>
void VisitArguments(const TimelineSlice& slice, const std::vector<collector::NodeTrace>& nodes,
                    const TraceRanks& ranks, const Visit& visit) {
  constexpr double kNsPerUs = 1e3, kBytesPerGb = 1e9;
  const collector::TracedCommunicator& communicator = CommunicatorOf(slice, nodes);
  const auto visit_rank = [&](std::string_view name, uint64_t rank) {
    if (const auto global = ranks.GlobalOf(ProcessOf(slice, nodes), communicator, rank))
      visit(name, *global);
    visit("comm_" + std::string(name), rank);
  };
  const auto visit_common = [&](uint64_t sequence, uint64_t bytes) {
    visit("collective", TraitsOf(FunctionOf(slice, nodes)).name);
    visit("comm", fmt::format("{:016x}", communicator.id));
    visit_rank("rank", communicator.rank);
    visit("ranks", communicator.ranks);
    visit("sequence", sequence);
    visit("bytes", bytes);
  };
  const collector::DetailedOperation* const operation = DetailedOperationOf(slice, nodes);
  if (slice.kind == SliceKind::kStep && operation == nullptr)
    visit("comm", fmt::format("{:016x}", communicator.id));
  if (operation != nullptr) {
    visit_common(operation->sequence, operation->bytes);
    if (operation->peer >= 0 && slice.kind == SliceKind::kChannel)
      visit_rank("peer", static_cast<uint64_t>(operation->peer));
  }
  if (slice.kind == SliceKind::kChannel) {
    visit("channel", uint64_t{communicator.detail->channels[slice.operation].channel});
  } else if (slice.kind == SliceKind::kStep) {
    const collector::TracedNetworkOperation& transfers = NetworkOperationOf(slice, nodes);
    const collector::TracedStep& step = communicator.detail->steps[slice.operation];
    const auto visit_state = [&](std::string_view name, int64_t ns) {
      visit(name, static_cast<double>(ns) / kNsPerUs);
    };
    const auto state_ns = [&](NetworkState state) {
      return step.state_ns[static_cast<size_t>(state)];
    };
    visit("channel", uint64_t{transfers.channel});
    if (transfers.peer >= 0) visit_rank("peer", static_cast<uint64_t>(transfers.peer));
    visit("step_bytes_at_most", transfers.step_bytes);
    // As the metrics have them: a receive that is not posted waits for its own GPU.
    const int64_t not_posted_ns = transfers.is_send ? 0 : state_ns(NetworkState::kPeer);
    visit_state("waits_for_gpu_us", state_ns(NetworkState::kGpu) + not_posted_ns);
    if (transfers.is_send) visit_state("waits_for_peer_us", state_ns(NetworkState::kPeer));
    visit_state("waits_for_network_us", state_ns(NetworkState::kNetwork));
    if (!transfers.is_send) visit_state("waits_for_flush_us", state_ns(NetworkState::kFlush));
  } else if (slice.kind == SliceKind::kInFlight) {
    const collector::TracedInFlight& in_flight = communicator.in_flight[slice.operation];
    visit_common(in_flight.sequence, in_flight.bytes);
    if (in_flight.peer >= 0) visit_rank("peer", static_cast<uint64_t>(in_flight.peer));
    visit("parts_done", uint64_t{in_flight.parts_done});
    visit("parts_announced", uint64_t{in_flight.parts_announced});
  } else {
    const collector::TracedOperation& timed = communicator.operations[slice.operation];
    visit_common(timed.sequence, timed.bytes);
    if (slice.kind == SliceKind::kKernel) {
      visit("launch_members", timed.members);
      if (const auto bandwidth = BusBandwidthOf(communicator, timed))
        visit("bus_bandwidth_gb_per_s", static_cast<double>(*bandwidth) / kBytesPerGb);
    }
  }
  if (slice.awaited_rank) visit_rank("last_rank", *slice.awaited_rank);
  if (slice.uncertainty_ns)
    visit("uncertainty_us", static_cast<double>(*slice.uncertainty_ns) / kNsPerUs);
}

}  // namespace nccl_exporter::exporter
