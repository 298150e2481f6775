// SPDX-License-Identifier: Apache-2.0
#include "plugin/segment/recorder.h"

namespace nccl_exporter::plugin {

layout::SizeHistogram* Recorder::TakeSizeHistogram(SizeHistogramPlace& place, Function function,
                                                   int size_class) {
  const uint8_t taken = size_histograms_taken_.load(std::memory_order_relaxed);
  layout::SizeHistogram* const histogram = slot_->size_histograms + taken;
  place.store(histogram, std::memory_order_relaxed);
  if (taken == layout::kSizeHistograms) return histogram;
  StoreRelease(histogram->owner, layout::SizeHistogramOwner(function, size_class));
  // The operation that is counted next is not seen before the owner, by a daemon that copies the
  // counts first: otherwise a function would have no split for a scrape.
#if !defined(NCCL_EXPORTER_TSAN)  // ThreadSanitizer knows no fences
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
