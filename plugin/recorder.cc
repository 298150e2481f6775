// SPDX-License-Identifier: Apache-2.0
#include "plugin/recorder.h"

#include "proto/buckets.h"

namespace nccl_exporter {

void Recorder::CountStart(Function function, uint64_t bytes, uint64_t now_ns) {
  layout::FunctionBlock& counters = block(function);
  const int size_class = SizeClassOf(bytes);
  AddRelaxed(counters.started.operations[size_class], 1);
  AddRelaxed(counters.started.bytes[size_class], bytes);
  StoreRelaxed(counters.last_start_ns, now_ns);
}

void Recorder::ShowInFlight(uint64_t ticket, const OperationStart& start) {
  layout::InFlightEntry& shown = entry(ticket);
  StoreRelaxed(shown.function, static_cast<uint64_t>(start.function) | (start.is_untimed ? layout::kUntimedFlag : 0));
  StoreRelaxed(shown.sequence, start.sequence);
  StoreRelaxed(shown.start_ns, start.call_ns);
  StoreRelaxed(shown.bytes, start.message_bytes);
  StoreRelaxed(shown.parts, 0);
  StoreRelaxed(shown.last_part_ns, 0);
  StoreRelaxed(shown.peer, static_cast<uint64_t>(start.peer + 1));
  StoreRelease(shown.ticket, ticket);
}

void Recorder::Record(const Completion& completion) {
  layout::FunctionBlock& counters = block(completion.function);
  if (completion.is_timed) {
    RecordDuration(completion);
    AppendCompletion(completion);
  }
  StoreRelaxed(counters.last_completion_ns, completion.now_ns);
  AddRelaxed(counters.completed, 1);
}

void Recorder::ShowDrift() {
  std::atomic_ref<uint64_t>(slot_->timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kDrift), std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot_->timing_source)
      .store(static_cast<uint64_t>(TimingSource::kNone), std::memory_order_release);
}

void Recorder::RecordDuration(const Completion& completion) {
  layout::FunctionBlock& counters = block(completion.function);
  const int size_class = SizeClassOf(completion.bytes);
  AddRelaxed(counters.timed.timed_operations[size_class], 1);
  AddRelaxed(counters.timed.timed_bytes[size_class], completion.bytes);
  AddRelaxed(counters.timed.busy_ns[size_class], completion.duration_ns);
  AddRelaxed(counters.duration[DurationBuckets::IndexOf(completion.duration_ns)], 1);

  const bool is_collective = !TraitsOf(completion.function).is_point_to_point;
  if (!is_collective || completion.members != 1 || completion.bytes < kBandwidthMinimumBytes) return;
  const uint64_t bandwidth = BusBandwidth(completion.function, completion.bytes, ranks(), completion.duration_ns);
  if (bandwidth == 0) return;
  AddRelaxed(counters.bandwidth[BandwidthBuckets::IndexOf(bandwidth)], 1);
  AddRelaxed(counters.bandwidth_sum_kib, bandwidth / 1024 + (bandwidth % 1024 >= 512 ? 1 : 0));
}

void Recorder::AppendCompletion(const Completion& completion) {
  constexpr uint64_t kSequenceMask = (uint64_t{1} << 56) - 1;
  const uint64_t ticket = AddRelaxed(completions_, 1) + 1;
  layout::CompletionEntry& recent = slot_->completions[(ticket - 1) % layout::kCompletionEntries];
  StoreRelaxed(recent.ticket, 0);
  // Released one by one, each after the 0: no reader takes the old ticket for the new entry.
  StoreRelease(recent.function_and_sequence,
               static_cast<uint64_t>(completion.function) << 56 | (completion.sequence & kSequenceMask));
  StoreRelease(recent.call_ns, completion.call_ns);
  StoreRelease(recent.start_ns, completion.start_ns);
  StoreRelease(recent.stop_ns, completion.stop_ns);
  StoreRelease(recent.delivered_ns, completion.now_ns);
  StoreRelease(recent.bytes, completion.bytes);
  StoreRelease(recent.members, completion.members);
  StoreRelease(recent.ticket, ticket);
}

}  // namespace nccl_exporter
