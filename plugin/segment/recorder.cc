// SPDX-License-Identifier: Apache-2.0
#include "plugin/segment/recorder.h"

namespace nccl_exporter::plugin {

layout::SizeHistogram* Recorder::TakeSizeHistogram(SizeHistogramPlace& place, Function function,
                                                   int size_class) {
  const uint8_t taken = LoadRelaxed(size_histograms_taken_);
  layout::SizeHistogram* const histogram = slot_->size_histograms + taken;
  StoreRelaxed(place, histogram);
  if (taken == layout::kSizeHistograms) return histogram;
  StoreRelease(histogram->owner, layout::SizeHistogramOwner(function, size_class));
  // The operation that is counted next is not seen before the owner, by a daemon that copies the
  // counts first: otherwise a function would have no split for a scrape.
#if !defined(NCCL_EXPORTER_TSAN)  // ThreadSanitizer knows no fences
  std::atomic_thread_fence(std::memory_order_release);
#endif
  StoreRelaxed(size_histograms_taken_, static_cast<uint8_t>(taken + 1));
  return histogram;
}

void Recorder::ForgetSizeHistograms() {
  StoreRelaxed(size_histograms_taken_, 0);
  for (auto& of_function : size_histograms_) {
    for (SizeHistogramPlace& place : of_function) StoreRelaxed(place, nullptr);
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
