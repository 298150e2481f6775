// SPDX-License-Identifier: Apache-2.0
#include "plugin/recorder.h"

#include "proto/buckets.h"

namespace nccl_exporter {

void Recorder::ShowDeferredStarts(Function function, int size_class) {
  DeferredStarts& deferred = deferred_starts_[static_cast<size_t>(function)][static_cast<size_t>(size_class)];
  auto& started = block(function).started;
  AddAlone(started.operations[size_class], deferred.operations.exchange(0, std::memory_order_acquire));
  AddAlone(started.bytes[size_class], deferred.bytes.exchange(0, std::memory_order_relaxed));
}

void Recorder::ShowDeferredCompletions(Function function) {
  Word& deferred = deferred_completions_[static_cast<size_t>(function)];
  AddAlone(block(function).completed, deferred.exchange(0, std::memory_order_relaxed));
}

void Recorder::ShowDeferred(const Turn& start_turn, const Turn& completion_turn) {
  for (int i = 0; i < kFunctionCount; ++i) {
    const Function function = static_cast<Function>(i);
    for (int size_class = 0; start_turn && size_class < kSizeClassCount; ++size_class) {
      ShowDeferredStarts(function, size_class);
    }
    if (completion_turn) ShowDeferredCompletions(function);
  }
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

void Recorder::RecordTimes(const Completion& completion) {
  RecordDuration(completion);
  AppendCompletion(completion);
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
  AddAlone(counters.timed.timed_operations[size_class], 1);
  AddAlone(counters.timed.timed_bytes[size_class], completion.bytes);
  AddAlone(counters.timed.busy_ns[size_class], completion.duration_ns);
  AddAlone(counters.duration[DurationBuckets::IndexOf(completion.duration_ns)], 1);

  const bool is_collective = !TraitsOf(completion.function).is_point_to_point;
  if (!is_collective || completion.members != 1 || completion.bytes < kBandwidthMinimumBytes) return;
  const double bus_bytes =
      BusBytesOfShare(completion.function, completion.bytes, bus_share_.load(std::memory_order_relaxed));
  const uint64_t bandwidth = BusBandwidth(bus_bytes, completion.duration_ns);
  if (bandwidth == 0) return;
  AddAlone(counters.bandwidth[BandwidthBuckets::IndexOf(bandwidth)], 1);
  AddAlone(counters.bandwidth_sum_kib, bandwidth / 1024 + (bandwidth % 1024 >= 512 ? 1 : 0));
}

void Recorder::AppendCompletion(const Completion& completion) {
  constexpr uint64_t kSequenceMask = (uint64_t{1} << 56) - 1;
  const uint64_t ticket = LoadRelaxed(completions_) + 1;
  StoreRelaxed(completions_, ticket);
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
