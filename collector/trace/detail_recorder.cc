// SPDX-License-Identifier: Apache-2.0
#include "collector/trace/detail_recorder.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace nccl_exporter::collector {
namespace {

using trace_ring::Bits;
using trace_ring::RecordType;
using trace_ring::Role;

int64_t TimeOf(uint64_t ns) {
  return std::clamp(static_cast<int64_t>(ns), -kMostTraceNs, kMostTraceNs);
}

Function FunctionOf(uint64_t number) {
  return number < kFunctionCount ? static_cast<Function>(number) : Function::kOther;
}

// A ticket or a key is used again after 2^19 operations or more, which no window has. A process
// that writes one twice has its latest.
using Places = std::unordered_map<uint64_t, size_t>;

}  // namespace

DetailRecorder::DetailRecorder(pid_t pid, int64_t owner_start_ns,
                               const TraceMemory::Request& request, size_t most_parts,
                               int64_t clock_offset_ns)
    : has_steps_(request.level == trace_ring::Level::kSteps),
      parts_left_(most_parts),
      clock_offset_ns_(clock_offset_ns) {
  memory_ = TraceMemory::Open(pid, owner_start_ns, fault_);
  if (memory_ != nullptr && !memory_->Ask(request, fault_)) memory_.reset();
}

void DetailRecorder::Read() {
  if (memory_ == nullptr) return;
  memory_->Read([this](uint32_t number, std::span<const uint64_t> record) {
    Slot& slot = slots_[number];
    if (parts_left_ == 0) {
      ++slot.beyond_limit;
      return;
    }
    --parts_left_;
    Add(record, slot);
  });
}

int64_t DetailRecorder::OwnTimeOf(uint64_t ns) const {
  return TimeOf(ns - static_cast<uint64_t>(clock_offset_ns_));
}

void DetailRecorder::Add(std::span<const uint64_t> record, Slot& slot) const {
  const uint64_t first = record[0];
  const auto key = static_cast<uint32_t>(first >> 32);
  switch (trace_ring::TypeOf(first)) {
    case RecordType::kOperation:
      slot.operations.push_back(
          {.ticket = Bits(first, 12, trace_ring::kTicketBits),
           .function = FunctionOf(Bits(first, 4, 8)),
           .sequence = record[1],
           .call_ns = OwnTimeOf(record[2]),
           .bytes = record[3],
           .peer = static_cast<int>(Bits(first, 38, trace_ring::kTicketBits)) - 1});
      return;
    case RecordType::kChannel:
      slot.channels.push_back({.ticket = Bits(first, 12, trace_ring::kTicketBits),
                               .traced = {.operation = 0,
                                          .channel = static_cast<uint32_t>(Bits(first, 4, 8)),
                                          .start_ns = TimeOf(record[1]),
                                          .stop_ns = TimeOf(record[2])}});
      return;
    case RecordType::kNetworkOperation: {
      NetworkOperation& operation = slot.network_operations.emplace_back();
      operation.key = key;
      if (Bits(first, 5, 1) != 0) operation.ticket = record[2] & trace_ring::kTicketMask;
      operation.traced = {.operation = {},
                          .is_send = Bits(first, 4, 1) != 0,
                          .channel = static_cast<uint32_t>(Bits(first, 8, 8)),
                          .peer = static_cast<int>(record[1] >> 32) - 1,
                          .step_bytes = record[1] & 0xffffffff};
      return;
    }
    case RecordType::kStep: {
      Step& step = slot.steps.emplace_back();
      step.key = key;
      step.traced.end_ns = OwnTimeOf(record[1]);
      // All states of a step together are within a trace's times.
      for (size_t i = 0; i < kNetworkStateCount; ++i) {
        step.traced.state_ns[i] = static_cast<int64_t>(
            std::min<uint64_t>(record[2 + i], kMostTraceNs / kNetworkStateCount));
      }
      return;
    }
  }
}

std::string DetailRecorder::Fault() const {
  return memory_ == nullptr ? fault_ : AnswerText(memory_->answer());
}

TracedDetail DetailRecorder::Take(uint32_t number, int64_t end_ns) {
  TracedDetail detail;
  detail.has_steps = has_steps_;
  if (memory_ != nullptr) {
    detail.lost_operations =
        memory_->LostBy(number, Role::kCaller) + memory_->HiddenOf(number, Role::kCaller);
    detail.lost_parts =
        memory_->LostBy(number, Role::kProgress) + memory_->HiddenOf(number, Role::kProgress);
  }
  Slot slot = std::move(slots_[number]);
  slots_.erase(number);
  detail.beyond_limit = slot.beyond_limit;
  std::ranges::stable_sort(slot.operations, {}, &DetailedOperation::call_ns);
  Places operations, network_operations;
  std::unordered_set<uint64_t> is_late;  // called after the end, and left out
  for (DetailedOperation& operation : slot.operations) {
    if (operation.call_ns > end_ns) {
      is_late.insert(operation.ticket);
      continue;
    }
    operations[operation.ticket] = detail.operations.size();
    detail.operations.push_back(operation);
  }
  const auto find = [](const Places& places, uint64_t name) -> std::optional<size_t> {
    const auto found = places.find(name);
    if (found == places.end()) return std::nullopt;
    return found->second;
  };
  for (Channel& channel : slot.channels) {
    if (is_late.contains(channel.ticket)) continue;
    const std::optional<size_t> operation = find(operations, channel.ticket);
    if (!operation) {
      ++detail.orphans;
      continue;
    }
    channel.traced.operation = *operation;
    detail.channels.push_back(channel.traced);
  }
  std::ranges::stable_sort(detail.channels, {}, &TracedChannel::start_ns);
  std::unordered_set<uint32_t> late_keys;
  for (NetworkOperation& operation : slot.network_operations) {
    if (operation.ticket && is_late.contains(*operation.ticket)) {
      late_keys.insert(operation.key);
      continue;
    }
    if (operation.ticket) operation.traced.operation = find(operations, *operation.ticket);
    network_operations[operation.key] = detail.network_operations.size();
    detail.network_operations.push_back(operation.traced);
  }
  std::ranges::stable_sort(slot.steps, {}, [](const Step& step) { return step.traced.end_ns; });
  for (Step& step : slot.steps) {
    if (late_keys.contains(step.key)) continue;
    const std::optional<size_t> operation = find(network_operations, step.key);
    if (!operation) {
      ++detail.orphans;
      continue;
    }
    step.traced.network_operation = *operation;
    detail.steps.push_back(step.traced);
  }
  return detail;
}

}  // namespace nccl_exporter::collector
