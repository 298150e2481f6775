// SPDX-License-Identifier: Apache-2.0
// All that is ever written into a communicator's slot after it was claimed: increments, the picture of what is in
// flight, and the ring of completions. Any thread; no lock, no system call. Where a method says "alone", one thread at
// a time may call it: its increments read the word that they write.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/operation.h"
#include "plugin/word.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {

// An operation whose time is known.
struct Completion {
  Function function = Function::kOther;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;  // its share of the launch
  uint32_t members = 1;      // operations of the launch, itself included
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
    ranks_.store(ranks, std::memory_order_relaxed);
    bus_share_.store(BusShare(ranks), std::memory_order_relaxed);
    StoreRelaxed(completions_, 0);
  }
  uint32_t ranks() const { return ranks_.load(std::memory_order_relaxed); }
  layout::CommunicatorSlot* slot() const { return slot_; }

  void CountLoss(Loss loss) { CountLosses(loss, 1); }
  void CountLosses(Loss loss, uint64_t count) { AddRelaxed(header_->losses[static_cast<uint8_t>(loss)], count); }
  // NCCL allows one call on a communicator at a time. Of several communicators that share a slot: not alone.
  void CountCall(Function function, bool is_alone) {
    Word& calls = block(function).calls;
    is_alone ? AddAlone(calls, 1) : static_cast<void>(AddRelaxed(calls, 1));
  }
  // Under a turn of the communicator's starts; without it the count shows with the next one of its kind that has it.
  void CountStart(const Turn& turn, Function function, uint64_t bytes, uint64_t now_ns) {
    const int size_class = SizeClassOf(bytes);
    layout::FunctionBlock& counters = block(function);
    StoreRelaxed(counters.last_start_ns, now_ns);
    DeferredStarts& deferred = deferred_starts_[static_cast<size_t>(function)][static_cast<size_t>(size_class)];
    if (!turn) return deferred.Add(bytes);
    if (LoadRelaxed(deferred.operations) != 0) ShowDeferredStarts(function, size_class);
    AddAlone(counters.started.operations[size_class], 1);
    AddAlone(counters.started.bytes[size_class], bytes);
  }

  void ShowInFlight(uint64_t ticket, const OperationStart& start);
  void ShowParts(uint64_t ticket, uint64_t parts) { StoreRelaxed(entry(ticket).parts, parts); }
  void ShowLastPart(uint64_t ticket, uint64_t now_ns) { StoreRelaxed(entry(ticket).last_part_ns, now_ns); }
  void HideInFlight(uint64_t ticket) { StoreRelease(entry(ticket).ticket, 0); }

  // Under a turn of the communicator's completions, in the same way.
  void CountCompleted(const Turn& turn, Function function, uint64_t now_ns) {
    layout::FunctionBlock& counters = block(function);
    StoreRelaxed(counters.last_completion_ns, now_ns);
    Word& deferred = deferred_completions_[static_cast<size_t>(function)];
    if (!turn) return static_cast<void>(AddRelaxed(deferred, 1));
    if (LoadRelaxed(deferred) != 0) ShowDeferredCompletions(function);
    AddAlone(counters.completed, 1);
  }
  // At the end of a communicator: what no further operation would show.
  void ShowDeferred(const Turn& start_turn, const Turn& completion_turn);
  // Only under a turn of the communicator's completions.
  void RecordTimes(const Completion& completion);
  // From now on the communicator is untimed, because its time stamps drift.
  void ShowDrift();

 private:
  layout::FunctionBlock& block(Function function) { return slot_->functions[static_cast<uint8_t>(function)]; }
  layout::InFlightEntry& entry(uint64_t ticket) { return slot_->in_flight[(ticket - 1) % layout::kInFlightEntries]; }
  struct DeferredStarts {
    Word operations{0};
    Word bytes{0};
    void Add(uint64_t more_bytes) {
      AddRelaxed(bytes, more_bytes);
      AddRelaxed(operations, 1);
    }
  };
  void ShowDeferredStarts(Function function, int size_class);
  void ShowDeferredCompletions(Function function);
  void RecordDuration(const Completion& completion);
  void AppendCompletion(const Completion& completion);

  layout::CommunicatorSlot* slot_ = nullptr;
  layout::SegmentHeader* header_ = nullptr;
  std::atomic<uint32_t> ranks_{0};
  std::atomic<double> bus_share_{0};
  std::array<std::array<DeferredStarts, kSizeClassCount>, kFunctionCount> deferred_starts_;
  std::array<Word, kFunctionCount> deferred_completions_{};
  Word completions_{0};  // our own count: the segment's is never read back
};

}  // namespace nccl_exporter
