// SPDX-License-Identifier: Apache-2.0
// Recorder of one communicator: all that is written into its slot after it was claimed. Increments,
// operations in flight, and the ring of completions. Any thread; no system call.
//
// Starts are counted by fetch_add, but for those of a thread that is alone. Completions and times
// are written under a lock of the communicator's completions, without locked instructions.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "plugin/nccl/vocabulary.h"
#include "plugin/segment/atomics.h"
#include "proto/buckets.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

// Operations of a communicator that are followed, and shown in flight, at a time.
inline constexpr uint64_t kOperationEntries = layout::kInFlightEntries;

// An operation whose time is known.
struct Completion {
  Function function = Function::kOther;
  uint32_t members = 1;  // operations of the launch, itself included
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;  // its share of the launch
  uint64_t sequence = 0;
  uint64_t call_ns = 0;
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
  uint64_t now_ns = 0;
};

class Recorder {
 public:
  void Open(layout::CommunicatorSlot* slot, layout::SegmentHeader* header, uint32_t ranks) {
    if (slot_ == nullptr) {
      slot_ = slot;  // for good: late events of a former communicator may be reading it
      header_ = header;
    }
    StoreRelaxed(ranks_, ranks);
    StoreRelaxed(bus_share_, BusShare(ranks));
    StoreRelaxed(completions_, 0);
    StoreRelaxed(size_histograms_taken_, 0);
    for (auto& of_function : size_histograms_) Zero(of_function);
  }
  // Several communicators use the slot: their counts are not written by one thread at a time.
  void ShareSlot() { StoreRelaxed(is_shared_, true); }
  bool is_shared() const { return LoadRelaxed(is_shared_); }
  uint32_t ranks() const { return LoadRelaxed(ranks_); }
  layout::CommunicatorSlot* slot() const { return slot_; }

  void CountLoss(Loss loss) { CountLosses(loss, 1); }
  void CountLosses(Loss loss, uint64_t count) {
    AddRelaxed(header_->losses[static_cast<uint8_t>(loss)], count);
  }
  // NCCL allows one call on a communicator at a time.
  void CountCall(Function function) { Add(block(function).calls, 1, !is_shared()); }
  void CountStart(Function function, uint64_t bytes, uint64_t now_ns) {
    const int size_class = SizeClassOf(bytes);
    layout::FunctionBlock& counters = block(function);
    StoreRelaxed(counters.last_start_ns, now_ns);
    AddRelaxed(counters.started.operations[size_class], 1);
    AddRelaxed(counters.started.bytes[size_class], bytes);
  }

  // Any thread: the network operations of an operation that starts now are timed.
  void CountNetworkTimed(Function function, uint64_t bytes) {
    AddRelaxed(block(function).network_timed_bytes, bytes);
  }

  void Prefetch(uint64_t ticket) { __builtin_prefetch(&entry(ticket), 1); }
  void ShowInFlight(uint64_t ticket, const OperationStart& start);
  void ShowParts(uint64_t ticket, uint64_t parts) { StoreRelaxed(entry(ticket).parts, parts); }
  void ShowLastPart(uint64_t ticket, uint64_t now_ns) {
    StoreRelaxed(entry(ticket).last_part_ns, now_ns);
  }
  void HideInFlight(uint64_t ticket) { StoreRelease(entry(ticket).ticket, 0); }

  // Only under the lock of the communicator's completions.
  void CountCompleted(Function function, uint64_t now_ns, uint64_t count = 1) {
    layout::FunctionBlock& counters = block(function);
    StoreRelaxed(counters.last_completion_ns, now_ns);
    ExclusiveAdd(counters.completed, count);
  }
  void RecordTimes(const Completion& completion) {
    RecordDuration(completion);
    AppendCompletion(completion);
  }
  // From now on the communicator is untimed, because its time stamps drift.
  void ShowDrift(DriftCause cause) {
    StoreRelaxed(slot_->drift_cause, static_cast<uint64_t>(cause));
    StoreRelaxed(slot_->timing_reason, static_cast<uint64_t>(TimingReason::kDrift));
    StoreRelease(slot_->timing_source, static_cast<uint64_t>(TimingSource::kNone));
  }
  void ShowProbation(uint32_t launches) { StoreRelaxed(slot_->probation_launches, launches); }

 private:
  layout::FunctionBlock& block(Function function) {
    return slot_->functions[static_cast<uint8_t>(function)];
  }
  layout::InFlightEntry& entry(uint64_t ticket) {
    return slot_->in_flight[(ticket - 1) % kOperationEntries];
  }
  using SizeHistogramPlace = std::atomic<layout::SizeHistogram*>;
  // The histogram of a function's size class; the end of the slot's histograms if there was none
  // left.
  layout::SizeHistogram* SizeHistogramOf(Function function, int size_class) {
    SizeHistogramPlace& place =
        size_histograms_[static_cast<size_t>(function)][static_cast<size_t>(size_class)];
    layout::SizeHistogram* const histogram = LoadRelaxed(place);
    return histogram != nullptr ? histogram : TakeSizeHistogram(place, function, size_class);
  }
  [[gnu::cold, gnu::noinline]] layout::SizeHistogram* TakeSizeHistogram(SizeHistogramPlace& place,
                                                                        Function function,
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
  void RecordDuration(const Completion& completion);
  void AppendCompletion(const Completion& completion);

  layout::CommunicatorSlot* slot_ = nullptr;
  layout::SegmentHeader* header_ = nullptr;
  std::atomic<bool> is_shared_{false};
  std::atomic<uint32_t> ranks_{0};
  std::atomic<double> bus_share_{0};
  AtomicU64 completions_{0};  // our own count: the segment's is never read back
  // nullptr: not asked for so far. Addresses, and a power of two of them for each function, because
  // an index costs 0.1 T more for each completion.
  static constexpr size_t kSizeClassPlaces = 8;
  static_assert(kSizeClassPlaces >= kSizeClassCount);
  std::array<std::array<SizeHistogramPlace, kSizeClassPlaces>, kFunctionCount> size_histograms_{};
  std::atomic<uint8_t> size_histograms_taken_{0};
};

inline void Recorder::ShowInFlight(uint64_t ticket, const OperationStart& start) {
  layout::InFlightEntry& shown = entry(ticket);
  // Each after the 0 of HideInFlight: no reader takes the old ticket for the new entry.
  StoreRelease(shown.function, static_cast<uint64_t>(start.function) |
                                   (start.is_untimed ? layout::kUntimedFlag : 0));
  StoreRelease(shown.sequence, start.sequence);
  StoreRelease(shown.start_ns, start.call_ns);
  StoreRelease(shown.bytes, start.message_bytes);
  StoreRelease(shown.parts, 0);
  StoreRelease(shown.last_part_ns, 0);
  StoreRelease(shown.peer, static_cast<uint64_t>(int64_t{start.peer} + 1));
  StoreRelease(shown.ticket, ticket);
}

inline void Recorder::RecordDuration(const Completion& completion) {
  layout::FunctionBlock& counters = block(completion.function);
  const int size_class = SizeClassOf(completion.bytes);
  layout::SizeHistogram* const by_size = SizeHistogramOf(completion.function, size_class);
  const int bucket = DurationBuckets::IndexOf(completion.duration_ns);
  ExclusiveAdd(counters.timed.timed_operations[size_class], 1);
  ExclusiveAdd(counters.timed.timed_bytes[size_class], completion.bytes);
  ExclusiveAdd(counters.timed.busy_ns[size_class], completion.duration_ns);
  ExclusiveAdd(counters.duration[bucket], 1);
  // Again, and not instead: readers of 1.0 to 1.2 know no other histogram.
  if (by_size != std::end(slot_->size_histograms)) ExclusiveAdd(by_size->duration[bucket], 1);

  const bool is_collective = !TraitsOf(completion.function).is_point_to_point;
  if (!is_collective || completion.members != 1 || completion.bytes < kBandwidthMinimumBytes)
    return;
  const double bus_bytes =
      BusBytesOfShare(completion.function, completion.bytes, LoadRelaxed(bus_share_));
  const uint64_t bandwidth = BusBandwidth(bus_bytes, completion.duration_ns);
  if (bandwidth == 0) return;
  ExclusiveAdd(counters.bandwidth[BandwidthBuckets::IndexOf(bandwidth)], 1);
  ExclusiveAdd(counters.bandwidth_sum_kib, bandwidth / 1024 + (bandwidth % 1024 >= 512 ? 1 : 0));
}

inline void Recorder::AppendCompletion(const Completion& completion) {
  constexpr uint64_t kSequenceMask = (uint64_t{1} << 56) - 1;
  const uint64_t ticket = LoadRelaxed(completions_) + 1;
  StoreRelaxed(completions_, ticket);
  layout::CompletionEntry& recent = slot_->completions[(ticket - 1) % layout::kCompletionEntries];
  StoreRelaxed(recent.ticket, 0);
  // Released one by one, each after the 0: no reader takes the old ticket for the new entry.
  StoreRelease(recent.function_and_sequence, static_cast<uint64_t>(completion.function) << 56 |
                                                 (completion.sequence & kSequenceMask));
  StoreRelease(recent.call_ns, completion.call_ns);
  StoreRelease(recent.start_ns, completion.start_ns);
  StoreRelease(recent.stop_ns, completion.stop_ns);
  StoreRelease(recent.delivered_ns, completion.now_ns);
  StoreRelease(recent.bytes, completion.bytes);
  StoreRelease(recent.members, completion.members);
  StoreRelease(recent.ticket, ticket);
}

}  // namespace nccl_exporter::plugin
