// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/segment_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "exporter/text/text_line.h"
#include "exporter/text/time_text.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9;

std::string Quoted(std::string_view text) {
  std::string quoted;
  AppendQuoted(text, quoted);
  return quoted;
}

// A number that is 0 if it is unknown.
std::string Known(uint64_t number) { return number == 0 ? "unknown" : std::to_string(number); }

// One line per bucket that is not empty, in the exposed unit.
template <typename Buckets>
void DumpHistogram(std::string_view name, std::span<const uint64_t> counts, std::string_view unit,
                   std::string& out) {
  if (std::ranges::all_of(counts, [](uint64_t count) { return count == 0; })) return;
  Line(out, "    {}", name);
  for (int i = 0; i < Buckets::kCount && static_cast<size_t>(i) < counts.size(); ++i) {
    const uint64_t count = counts[static_cast<size_t>(i)];
    if (count == 0) continue;
    const std::string above = i == 0 ? "0" : fmt::format("{:.6g}", Buckets::UpperBound(i - 1));
    const std::string up_to =
        i == Buckets::kBoundCount ? "+Inf" : fmt::format("{:.6g}", Buckets::UpperBound(i));
    Line(out, "      ({}, {}] {}: {}", above, up_to, unit, count);
  }
}

void DumpFunction(Function id, const collector::FunctionSnapshot& function, std::string& out) {
  if (!function.IsUsed()) return;
  Line(out, "  {}: {} calls, {} operations known complete", TraitsOf(id).name, function.calls,
       function.completed);
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const collector::SizeClassSnapshot& size = function.sizes[i];
    if (!size.IsUsed()) continue;
    Line(
        out,
        "    from {} bytes: {} operations, {} bytes; timed: {} operations, {} bytes, {:.9f} s busy",
        kSizeClassBounds[i], size.operations, size.bytes, size.timed_operations, size.timed_bytes,
        static_cast<double>(size.busy_ns) / kNsPerSecond);
  }
  bool is_split = false;
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const std::span<const uint64_t> counts = function.duration_by_size[i].counts;
    is_split = is_split || !counts.empty();
    DumpHistogram<DurationBuckets>(fmt::format("duration from {} bytes", kSizeClassBounds[i]),
                                   counts, "s", out);
  }
  if (!is_split) DumpHistogram<DurationBuckets>("duration", function.duration, "s", out);
  DumpHistogram<BandwidthBuckets>("bus bandwidth", function.bandwidth, "B/s", out);
}

void DumpNetwork(const collector::CommunicatorSnapshot& communicator, std::string& out) {
  if (!communicator.network) return;
  Line(out, "  network operations are timed for {} of the time",
       static_cast<double>(communicator.network_share_ppm) / kWholeDutyPpm);
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    const collector::NetworkDirectionCounts& counts = communicator.network->directions[i];
    if (counts.operations == 0) continue;
    Line(out, "    {}: {} operations, {} bytes", kNetworkDirections[i].name, counts.operations,
         counts.bytes);
    for (size_t state = 0; state < kNetworkStateCount; ++state) {
      if (counts.wait_ns[state] == 0) continue;
      Line(out, "      {}: {:.9f} s", kNetworkStates[state].name,
           static_cast<double>(counts.wait_ns[state]) / kNsPerSecond);
    }
  }
}

void DumpInFlight(const collector::CommunicatorSnapshot& communicator, std::string& out) {
  if (!communicator.completion_is_known || communicator.in_flight.empty()) return;
  Line(out, "  in flight: {}", communicator.in_flight.size());
  for (const collector::InFlightOperation& operation : communicator.in_flight) {
    const std::string peer = operation.peer < 0 ? "" : fmt::format(", peer {}", operation.peer);
    Line(out, "    {} sequence {}{}: {} bytes, since {}, {} of {} parts done",
         TraitsOf(operation.function).name, operation.sequence, peer, operation.bytes,
         TimeText(operation.start_realtime_ns), operation.parts_done, operation.parts_announced);
  }
}

void DumpIdentity(const collector::CommunicatorSnapshot& communicator, std::string& out) {
  if (communicator.is_overflow) {
    Line(out, "communicators without a slot, summed (slot {})", communicator.slot);
    return;
  }
  const std::string id =
      communicator.has_identity ? fmt::format("{:016x}", communicator.id) : "not known yet";
  const std::string rank =
      communicator.has_identity ? std::to_string(communicator.rank) : "not known yet";
  Line(out, "communicator {} (slot {}, generation {}{})", id, communicator.slot,
       communicator.generation, communicator.is_closed ? ", finalized" : "");
  Line(out, "  name {}, rank {}, ranks {}, nodes {}", Quoted(communicator.name), rank,
       Known(communicator.ranks), Known(communicator.nodes));
  Line(out, "  gpu {}, uuid {}, pci bus id {}",
       communicator.gpu_index < 0 ? "unknown" : std::to_string(communicator.gpu_index),
       Quoted(communicator.gpu_uuid), Quoted(communicator.pci_bus_id));
  Line(out, "  profiler API v{}, NCCL {}, event mask {:#x}, timing source {} ({})",
       communicator.api_version, Known(static_cast<uint64_t>(communicator.nccl_version)),
       communicator.event_mask, NameOf(communicator.timing_source),
       NameOf(communicator.timing_reason));
  if (communicator.drift_cause != DriftCause::kNone) {
    const CodeRow<DriftCause>& cause = RowIn(kDriftCauses, communicator.drift_cause);
    Line(out, "  kernel timing ended by {} ({})", cause.name, cause.meaning);
  }
  if (communicator.probation_launches != 0) {
    Line(out,
         "  NCCL release not known: kernel times are held until {} further launches agree with the "
         "CPU's clock",
         communicator.probation_launches);
  }
  Line(out, "  created {}, last progress {}", TimeText(communicator.created_realtime_ns),
       TimeText(communicator.last_progress_realtime_ns));
  const std::string completed = communicator.completion_is_known
                                    ? std::to_string(communicator.completed_sequence)
                                    : "unknown";
  Line(out, "  collectives started {}, completed {}", communicator.started_sequence, completed);
  if (communicator.unseen_operations != 0) {
    Line(out, "  of unknown state, running or complete: {}", communicator.unseen_operations);
  }
}

void DumpProcess(const collector::ProcessSnapshot& process, std::string& out) {
  Line(out, "segment {}", Quoted(process.segment));
  Line(out, "process {} ({}), uid {}, on {}, {}", process.pid, Quoted(process.executable),
       process.uid, Quoted(process.host_name), process.is_alive ? "alive" : "gone");
  Line(out, "plugin {}, started {}", Quoted(process.plugin_version),
       TimeText(process.start_realtime_ns));
  for (const auto& [name, value] : process.identity)
    Line(out, "  {}={}", Quoted(name), Quoted(value));
}

void DumpLosses(const collector::ProcessSnapshot& process, std::string& out) {
  Line(out, "losses");
  bool is_any = false;
  for (size_t i = 0; i < kLossCount; ++i) {
    if (process.losses[i] == 0) continue;
    is_any = true;
    Line(out, "  {}: {} ({})", kLosses[i].reason, process.losses[i], kLosses[i].meaning);
  }
  if (!is_any) Line(out, "  none");
}

}  // namespace

std::string DumpText(const collector::ProcessSnapshot& process) {
  std::string out;
  DumpProcess(process, out);
  DumpLosses(process, out);
  for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
    out += '\n';
    DumpIdentity(communicator, out);
    for (size_t i = 0; i < communicator.functions.size(); ++i) {
      DumpFunction(static_cast<Function>(i), communicator.functions[i], out);
    }
    DumpNetwork(communicator, out);
    DumpInFlight(communicator, out);
  }
  return out;
}

}  // namespace nccl_exporter::exporter
