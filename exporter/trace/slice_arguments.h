// SPDX-License-Identifier: Apache-2.0
// Name and arguments of a slice, the same in all formats. Pure functions, for any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/trace/timeline.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {

inline const collector::TracedCommunicator& CommunicatorOf(
    const TimelineSlice& slice, const std::vector<collector::NodeTrace>& nodes) {
  return nodes[slice.node].processes[slice.process].communicators[slice.communicator];
}

inline Function FunctionOf(const TimelineSlice& slice,
                           const std::vector<collector::NodeTrace>& nodes) {
  const collector::TracedCommunicator& communicator = CommunicatorOf(slice, nodes);
  return slice.kind == SliceKind::kInFlight ? communicator.in_flight[slice.operation].function
                                            : communicator.operations[slice.operation].function;
}

inline std::string SliceName(const TimelineSlice& slice,
                             const std::vector<collector::NodeTrace>& nodes) {
  if (slice.kind == SliceKind::kWait) return fmt::format("waits for rank {}", *slice.awaited_rank);
  const std::string function(TraitsOf(FunctionOf(slice, nodes)).name);
  if (slice.kind == SliceKind::kCall) return function + " call";
  return slice.kind == SliceKind::kInFlight ? function + " in flight" : function;
}

// Calls `visit` with the name and the value of each argument: a text, a whole number or a double.
template <typename Visit>
void VisitArguments(const TimelineSlice& slice, const std::vector<collector::NodeTrace>& nodes,
                    const Visit& visit) {
  constexpr double kNsPerUs = 1e3, kBytesPerGb = 1e9;
  const collector::TracedCommunicator& communicator = CommunicatorOf(slice, nodes);
  const auto visit_common = [&](uint64_t sequence, uint64_t bytes) {
    visit("collective", TraitsOf(FunctionOf(slice, nodes)).name);
    visit("comm", fmt::format("{:016x}", communicator.id));
    visit("rank", communicator.rank);
    visit("ranks", communicator.ranks);
    visit("sequence", sequence);
    visit("bytes", bytes);
  };
  if (slice.kind == SliceKind::kInFlight) {
    const collector::TracedInFlight& operation = communicator.in_flight[slice.operation];
    visit_common(operation.sequence, operation.bytes);
    if (operation.peer >= 0) visit("peer", static_cast<uint64_t>(operation.peer));
    visit("parts_done", uint64_t{operation.parts_done});
    visit("parts_announced", uint64_t{operation.parts_announced});
  } else {
    const collector::TracedOperation& operation = communicator.operations[slice.operation];
    visit_common(operation.sequence, operation.bytes);
    if (slice.kind == SliceKind::kKernel) {
      visit("launch_members", operation.members);
      if (const auto bandwidth = BusBandwidthOf(communicator, operation))
        visit("bus_bandwidth_gb_per_s", static_cast<double>(*bandwidth) / kBytesPerGb);
    }
  }
  if (slice.awaited_rank) visit("last_rank", *slice.awaited_rank);
  if (slice.uncertainty_ns)
    visit("uncertainty_us", static_cast<double>(*slice.uncertainty_ns) / kNsPerUs);
}

}  // namespace nccl_exporter::exporter
