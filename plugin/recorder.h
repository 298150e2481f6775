// SPDX-License-Identifier: Apache-2.0
// All that is ever written into a communicator's slot after it was claimed: increments, the picture of what is in
// flight, and the ring of completions. Nothing is read back. Any thread; no lock, no system call.
#pragma once

#include <cstdint>

#include "plugin/operation.h"
#include "plugin/word.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {

// An operation that is known complete. Without a duration (duration_ns 0 and is_timed false) it counts as complete
// only.
struct Completion {
  Function function = Function::kOther;
  uint64_t bytes = 0;
  bool is_timed = false;
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
    StoreRelaxed(completions_, 0);
  }
  uint32_t ranks() const { return ranks_.load(std::memory_order_relaxed); }
  layout::CommunicatorSlot* slot() const { return slot_; }

  void CountLoss(Loss loss) { CountLosses(loss, 1); }
  void CountLosses(Loss loss, uint64_t count) { AddRelaxed(header_->losses[static_cast<uint8_t>(loss)], count); }
  void CountCall(Function function) { AddRelaxed(block(function).calls, 1); }
  void CountStart(Function function, uint64_t bytes, uint64_t now_ns);

  void ShowInFlight(uint64_t ticket, const OperationStart& start);
  void ShowParts(uint64_t ticket, uint64_t parts) { StoreRelaxed(entry(ticket).parts, parts); }
  void ShowLastPart(uint64_t ticket, uint64_t now_ns) { StoreRelaxed(entry(ticket).last_part_ns, now_ns); }
  void HideInFlight(uint64_t ticket) { StoreRelease(entry(ticket).ticket, 0); }

  void Record(const Completion& completion);
  // From now on the communicator is untimed, because its time stamps drift.
  void ShowDrift();

 private:
  layout::FunctionBlock& block(Function function) { return slot_->functions[static_cast<uint8_t>(function)]; }
  layout::InFlightEntry& entry(uint64_t ticket) { return slot_->in_flight[(ticket - 1) % layout::kInFlightEntries]; }
  void RecordDuration(const Completion& completion);
  void AppendCompletion(const Completion& completion);

  layout::CommunicatorSlot* slot_ = nullptr;
  layout::SegmentHeader* header_ = nullptr;
  std::atomic<uint32_t> ranks_{0};
  Word completions_{0};  // our own count: the segment's is never read back
};

}  // namespace nccl_exporter
