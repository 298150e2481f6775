// SPDX-License-Identifier: Apache-2.0
#include "plugin/segment/recorder.h"

namespace nccl_exporter::plugin {

void Recorder::CountSharedStart(Function function, int size_class, uint64_t bytes) {
  AddRelaxed(block(function).started.operations[size_class], 1);
  AddRelaxed(block(function).started.bytes[size_class], bytes);
}

void Recorder::ForgetDeferred() {
  has_deferred_starts_.store(false, std::memory_order_relaxed);
  has_deferred_completions_.store(false, std::memory_order_relaxed);
  for (auto& of_function : deferred_starts_) {
    for (DeferredStarts& deferred : of_function) {
      StoreRelaxed(deferred.operations, 0);
      StoreRelaxed(deferred.bytes, 0);
    }
  }
  for (AtomicU64& completions : deferred_completions_) StoreRelaxed(completions, 0);
}

void Recorder::DeferStart(Function function, int size_class, uint64_t bytes) {
  DeferredStarts& deferred =
      deferred_starts_[static_cast<size_t>(function)][static_cast<size_t>(size_class)];
  AddRelaxed(deferred.bytes, bytes);
  AddRelaxed(deferred.operations, 1);
  has_deferred_starts_.store(true, std::memory_order_release);
}

void Recorder::DeferCompletion(Function function, uint64_t count) {
  AddRelaxed(deferred_completions_[static_cast<size_t>(function)], count);
  has_deferred_completions_.store(true, std::memory_order_release);
}

void Recorder::ShowDeferredStarts(const TryLock& lock) {
  if (!lock || !has_deferred_starts_.exchange(false, std::memory_order_acquire)) return;
  for (size_t function = 0; function < kFunctionCount; ++function) {
    for (size_t size_class = 0; size_class < kSizeClassCount; ++size_class) {
      DeferredStarts& deferred = deferred_starts_[function][size_class];
      auto& started = slot_->functions[function].started;
      ExclusiveAdd(started.operations[size_class],
                   deferred.operations.exchange(0, std::memory_order_relaxed));
      ExclusiveAdd(started.bytes[size_class],
                   deferred.bytes.exchange(0, std::memory_order_relaxed));
    }
  }
}

void Recorder::ShowDeferredCompletions(const TryLock& lock) {
  if (!lock || !has_deferred_completions_.exchange(false, std::memory_order_acquire)) return;
  for (size_t function = 0; function < kFunctionCount; ++function) {
    ExclusiveAdd(slot_->functions[function].completed,
                 deferred_completions_[function].exchange(0, std::memory_order_relaxed));
  }
}

layout::SizeHistogram* Recorder::TakeSizeHistogram(SizeHistogramPlace& place, Function function,
                                                   int size_class) {
  const uint8_t taken = size_histograms_taken_.load(std::memory_order_relaxed);
  layout::SizeHistogram* const histogram = slot_->size_histograms + taken;
  place.store(histogram, std::memory_order_relaxed);
  if (taken == layout::kSizeHistograms) return histogram;
  StoreRelease(histogram->owner, layout::SizeHistogramOwner(function, size_class));
  // The operation that is counted next is not seen before the owner, by a daemon that copies the
  // counts first: otherwise a function would have no split for a scrape.
#if !defined(NCCL_EXPORTER_TSAN)  // which knows no fences
  std::atomic_thread_fence(std::memory_order_release);
#endif
  size_histograms_taken_.store(static_cast<uint8_t>(taken + 1), std::memory_order_relaxed);
  return histogram;
}

void Recorder::ForgetSizeHistograms() {
  size_histograms_taken_.store(0, std::memory_order_relaxed);
  for (auto& of_function : size_histograms_) {
    for (SizeHistogramPlace& place : of_function) place.store(nullptr, std::memory_order_relaxed);
  }
}

void Recorder::ShowDrift(DriftCause cause) {
  StoreRelaxed(slot_->drift_cause, static_cast<uint64_t>(cause));
  std::atomic_ref<uint64_t>(slot_->timing_reason)
      .store(static_cast<uint64_t>(TimingReason::kDrift), std::memory_order_relaxed);
  std::atomic_ref<uint64_t>(slot_->timing_source)
      .store(static_cast<uint64_t>(TimingSource::kNone), std::memory_order_release);
}

}  // namespace nccl_exporter::plugin
