// SPDX-License-Identifier: Apache-2.0
#include "collector/trace/operation_recorder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "collector/reader/slot_directory.h"

namespace nccl_exporter::collector {
namespace {

int64_t TimeOf(uint64_t ns) {
  return std::clamp(static_cast<int64_t>(ns), -kMostTraceNs, kMostTraceNs);
}

// `source_offset_ns`: how far the clock of the timing source is ahead of ours.
TracedOperation TracedOf(const CompletedOperation& operation, int64_t source_offset_ns) {
  const auto offset_ns = static_cast<uint64_t>(source_offset_ns);
  return {.function = operation.function(),
          .sequence = operation.sequence(),
          .call_ns = TimeOf(operation.call_ns),
          .start_ns = TimeOf(operation.start_ns - offset_ns),
          .stop_ns = TimeOf(operation.stop_ns - offset_ns),
          .delivered_ns = TimeOf(operation.delivered_ns),
          .bytes = operation.bytes,
          .members = operation.members};
}

// Operations that the communicator has completed without times. Counts of a damaged segment may
// make it anything.
uint64_t UntimedOf(const CommunicatorSnapshot& communicator) {
  uint64_t untimed = 0;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!communicator.functions.IsInUse(i)) continue;
    const FunctionSnapshot& function = communicator.functions[i];
    untimed += function.completed;
    for (const SizeClassSnapshot& size : function.sizes) untimed -= size.timed_operations;
  }
  return untimed;
}

// Identity of an operation among those of its communicator. Sends and receives of one group share
// it.
using Identity = std::tuple<Function, uint64_t, int64_t>;

}  // namespace

OperationRecorder::OperationRecorder(int64_t begin_ns, bool is_polled, size_t most_operations)
    : begin_ns_(begin_ns), is_polled_(is_polled), most_operations_(most_operations) {}

void OperationRecorder::Follow(const NodeSnapshot& snapshot, const SegmentLooks& looks,
                               const Moment& now) {
  end_ = now;
  for (const ProcessSnapshot& seen : snapshot.processes) {
    const auto look = looks.find(seen.file);
    if (look == looks.end()) continue;
    const auto [found, is_new] = processes_.try_emplace(seen.file);
    Process& process = found->second;
    if (is_new && is_polled_ && is_first_) process.losses_before = seen.losses;
    process.latest = seen;
    process.latest.communicators.clear();
    room_of_.try_emplace(seen.uid, 0);
    for (const CommunicatorSnapshot& communicator : seen.communicators) {
      if (!communicator.is_overflow) FollowCommunicator(process, look->second, communicator);
    }
  }
  is_first_ = false;
}

// The slots of a dead process do not change, so a look does not have them: its header is read here.
void OperationRecorder::FollowCommunicator(Process& process, const SegmentLook& look,
                                           const CommunicatorSnapshot& communicator) {
  const auto [found, is_new] =
      process.rings.try_emplace({communicator.slot, communicator.generation});
  Ring& ring = found->second;
  ring.latest = communicator;
  ring.untimed = UntimedOf(communicator);
  if (!is_new) return;
  if (process.slot_bytes == 0) {
    const SlotDirectory slots =
        look.slots.process ? look.slots : ReadSlotDirectory(*look.file, nullptr);
    process.header_bytes = slots.header_bytes;
    process.slot_bytes = slots.slot_bytes;
  }
  ring.file = look.file;
  ring.generation = communicator.generation;
  ring.ring = CompletionRing(process.header_bytes + communicator.slot * process.slot_bytes,
                             look.clock_offset_ns);
  // Kernel times are of the GPU's clock.
  const bool is_kernel = communicator.timing_source == TimingSource::kKernel;
  ring.source_offset_ns = is_kernel ? 0 : look.clock_offset_ns;
  const int64_t begin_realtime_ns = end_.realtime_ns - (end_.monotonic_ns - begin_ns_);
  ring.is_new = communicator.created_realtime_ns >= begin_realtime_ns;
  ring.is_over = process.slot_bytes == 0;
  if (!ring.is_new) ring.untimed_before = ring.untimed;
  ring.traced.whole_since_ns = begin_ns_;
}

void OperationRecorder::Count(const NodeSnapshot& snapshot) {
  for (const ProcessSnapshot& seen : snapshot.processes) {
    const auto process = processes_.find(seen.file);
    if (process == processes_.end()) continue;
    for (const CommunicatorSnapshot& communicator : seen.communicators) {
      const auto ring = process->second.rings.find({communicator.slot, communicator.generation});
      if (ring != process->second.rings.end()) ring->second.untimed = UntimedOf(communicator);
    }
  }
}

void OperationRecorder::Read() {
  const size_t room = most_operations_ / std::max<size_t>(room_of_.size(), 1);
  for (auto& [uid, left] : room_of_) left = room;
  for (const auto& [key, process] : processes_) {
    size_t& left = room_of_[process.latest.uid];
    for (const auto& [slot, ring] : process.rings)
      left -= std::min(left, ring.traced.operations.size());
  }
  for (auto& [key, process] : processes_) {
    for (auto& [slot, ring] : process.rings) {
      if (!ring.is_over) Read(ring, room_of_[process.latest.uid]);
    }
  }
}

void OperationRecorder::Read(Ring& ring, size_t& room) {
  operations_.clear();
  const std::optional<uint64_t> lost = ring.ring.ReadOf(ring.generation, *ring.file, operations_);
  ring.is_over = !lost;
  if (ring.is_over) return;
  if (!ring.has_begun) {
    ring.is_new = ring.is_new || operations_.empty();
    if (operations_.empty()) return;
    ring.has_begun = true;
    NoteFirst(ring, operations_.front().ticket, TimeOf(operations_.front().delivered_ns));
  }
  ring.traced.overwritten += *lost;
  for (const CompletedOperation& operation : operations_) {
    if (TimeOf(operation.delivered_ns) < begin_ns_) continue;
    if (room == 0) {
      ++ring.traced.beyond_limit;
      continue;
    }
    --room;
    ring.traced.operations.push_back(TracedOf(operation, ring.source_offset_ns));
  }
}

// Operations that a ring had lost before its first read are not known to be of the window, unless
// all that the communicator did is.
void OperationRecorder::NoteFirst(Ring& ring, uint64_t first_ticket, int64_t first_delivered_ns) {
  if (first_ticket == 1) return;
  if (ring.is_new) {
    ring.traced.overwritten += first_ticket - 1;
  } else {
    ring.traced.whole_since_ns = std::max(begin_ns_, first_delivered_ns);
  }
}

NodeTrace OperationRecorder::Finish() {
  NodeTrace trace{.node = {},
                  .realtime_offset_ns = end_.realtime_ns - end_.monotonic_ns,
                  .begin_ns = begin_ns_,
                  .end_ns = end_.monotonic_ns,
                  .is_polled = is_polled_,
                  .processes = {}};
  for (auto& [key, process] : processes_) {
    const ProcessSnapshot& latest = process.latest;
    TracedProcess& traced =
        trace.processes.emplace_back(TracedProcess{.pid = latest.pid,
                                                   .uid = latest.uid,
                                                   .executable = latest.executable,
                                                   .global_rank = latest.numbers.GlobalText(),
                                                   .job = latest.JobName(),
                                                   .name_space = latest.Identity("POD_NAMESPACE"),
                                                   .pod = latest.Identity("POD_NAME"),
                                                   .is_alive = latest.is_alive,
                                                   .losses = latest.losses,
                                                   .communicators = {}});
    for (size_t i = 0; i < kLossCount; ++i) traced.losses[i] -= process.losses_before[i];
    for (auto& [slot, ring] : process.rings) {
      TracedCommunicator& communicator = traced.communicators.emplace_back(std::move(ring.traced));
      Describe(ring, communicator);
    }
  }
  return trace;
}

void OperationRecorder::Describe(const Ring& ring, TracedCommunicator& traced) const {
  const CommunicatorSnapshot& latest = ring.latest;
  traced.has_identity = latest.has_identity;
  traced.id = latest.id;
  traced.name = latest.name;
  traced.ranks = latest.ranks;
  traced.rank = latest.rank;
  traced.api_version = latest.api_version;
  traced.nccl_version = latest.nccl_version;
  traced.gpu_index = latest.gpu_index;
  traced.gpu_uuid = latest.gpu_uuid;
  traced.timing_source = latest.timing_source;
  traced.timing_reason = latest.timing_reason;
  traced.started.emplace();
  for (size_t i = 0; i < kFunctionCount; ++i) {
    uint64_t& started = traced.started->emplace_back();
    for (const SizeClassSnapshot& size : latest.functions[i].sizes) started += size.operations;
  }
  if (is_polled_) {
    const auto untimed = static_cast<int64_t>(ring.untimed - ring.untimed_before);
    traced.untimed = static_cast<uint64_t>(std::max<int64_t>(untimed, 0));
  }
  std::erase_if(traced.operations, [&](const TracedOperation& operation) {
    return operation.call_ns > end_.monotonic_ns;
  });
  AddInFlight(ring, traced);
}

// Without those that were completed since the snapshot.
void OperationRecorder::AddInFlight(const Ring& ring, TracedCommunicator& traced) const {
  traced.in_flight_is_known = ring.latest.completion_is_known;
  if (!ring.latest.completion_is_known) return;
  std::multiset<Identity> completed;
  for (const TracedOperation& operation : traced.operations)
    completed.emplace(operation.function, operation.sequence, operation.call_ns);
  for (const InFlightOperation& operation : ring.latest.in_flight) {
    const int64_t call_ns = end_.monotonic_ns - (end_.realtime_ns - operation.start_realtime_ns);
    const auto done = completed.find({operation.function, operation.sequence, call_ns});
    if (done != completed.end()) {
      completed.erase(done);
      continue;
    }
    traced.in_flight.push_back({.function = operation.function,
                                .sequence = operation.sequence,
                                .call_ns = call_ns,
                                .bytes = operation.bytes,
                                .peer = operation.peer,
                                .parts_announced = operation.parts_announced,
                                .parts_done = operation.parts_done});
  }
}

}  // namespace nccl_exporter::collector
