// SPDX-License-Identifier: Apache-2.0
#include "plugin/recorder.h"

namespace nccl_exporter {

void Recorder::CountSharedStart(Function function, int size_class, uint64_t bytes) {
  AddRelaxed(block(function).started.operations[size_class], 1);
  AddRelaxed(block(function).started.bytes[size_class], bytes);
}

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
  StoreRelaxed(shown.function, static_cast<uint64_t>(start.function));
  StoreRelaxed(shown.sequence, start.sequence);
  StoreRelaxed(shown.start_ns, start.call_ns);
  StoreRelaxed(shown.bytes, start.message_bytes);
  StoreRelaxed(shown.parts, 0);
  StoreRelaxed(shown.last_part_ns, 0);
  StoreRelaxed(shown.peer, static_cast<uint64_t>(start.peer + 1));
  StoreRelease(shown.ticket, ticket);
}

void Recorder::ShowDrift() {
  std::atomic_ref<uint64_t>(slot_->timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kDrift), std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot_->timing_source)
      .store(static_cast<uint64_t>(TimingSource::kNone), std::memory_order_release);
}

}  // namespace nccl_exporter
