// SPDX-License-Identifier: Apache-2.0
// Phases of one operation's kernel over symmetric windows. The thread that reports its channels,
// one at a time.
//
// NCCL reports the phases of a channel together, in their order, between the start and the stop of
// the channel (2.31.2 plugin/profiler.cc profilerFireKernelPhaseEvents): the first begins with the
// channel, each begins where the one before ended, and the last ends with the channel. A phase
// without length is left out. What does not keep to this was overwritten while it was read.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "plugin/segment/atomics.h"
#include "plugin/segment/recorder.h"
#include "proto/collective.h"

namespace nccl_exporter::plugin {

class KernelPhases {
 public:
  // Of the operation with that ticket. `channel_start_ns`: the low half.
  void Start(uint64_t ticket, uint32_t channel, uint32_t phase, uint64_t time_ns,
             uint32_t channel_start_ns);
  // False if none of the operation's phases has started.
  bool Stop(uint64_t ticket, uint64_t time_ns);

  // Whether any phase of that operation was reported.
  bool HasAny(uint64_t ticket) const { return LoadRelaxed(ticket_) == ticket; }
  // Means of its channels, one bit each, the last of which stopped then. Nothing if the phases do
  // not fit them.
  std::optional<PhaseTimes> Means(uint64_t channels, uint64_t stop_ns) const;

 private:
  void Begin(uint64_t ticket);

  AtomicU64 ticket_{0};        // whose phases these are
  AtomicU64 channels_{0};      // that have reported some, one bit each
  AtomicU64 start_ns_{0};      // of the latest
  AtomicU64 stop_ns_{0};       // of the latest of the same channel; 0: it has not stopped
  AtomicU64 last_stop_ns_{0};  // of all
  std::array<AtomicU64, kKernelPhaseCount> sums_{};  // over the channels
  std::atomic<uint8_t> phase_{0};                    // KernelPhase: the latest
  std::atomic<bool> fit_{true};  // those so far keep to the times of their channels
};

inline void KernelPhases::Begin(uint64_t ticket) {
  StoreRelaxed(channels_, 0);
  StoreRelaxed(last_stop_ns_, 0);
  for (AtomicU64& sum : sums_) StoreRelaxed(sum, 0);
  fit_.store(true, std::memory_order_relaxed);
  StoreRelaxed(ticket_, ticket);
}

inline void KernelPhases::Start(uint64_t ticket, uint32_t channel, uint32_t phase, uint64_t time_ns,
                                uint32_t channel_start_ns) {
  if (!HasAny(ticket)) Begin(ticket);
  const uint64_t bit = uint64_t{1} << channel;
  const uint64_t channels = LoadRelaxed(channels_);
  const bool is_first = (channels & bit) == 0;
  const bool continues = is_first ? static_cast<uint32_t>(time_ns) == channel_start_ns
                                  : time_ns == LoadRelaxed(stop_ns_);
  if (!continues || phase >= kKernelPhaseCount) fit_.store(false, std::memory_order_relaxed);
  StoreRelaxed(channels_, channels | bit);
  StoreRelaxed(start_ns_, time_ns);
  StoreRelaxed(stop_ns_, 0);
  phase_.store(static_cast<uint8_t>(phase < kKernelPhaseCount ? phase : 0),
               std::memory_order_relaxed);
}

inline bool KernelPhases::Stop(uint64_t ticket, uint64_t time_ns) {
  if (!HasAny(ticket)) return false;
  const uint64_t start_ns = LoadRelaxed(start_ns_);
  if (time_ns <= start_ns || LoadRelaxed(stop_ns_) != 0) {
    fit_.store(false, std::memory_order_relaxed);
    return true;
  }
  ExclusiveAdd(sums_[phase_.load(std::memory_order_relaxed)], time_ns - start_ns);
  StoreRelaxed(stop_ns_, time_ns);
  if (time_ns > LoadRelaxed(last_stop_ns_)) StoreRelaxed(last_stop_ns_, time_ns);
  return true;
}

inline std::optional<PhaseTimes> KernelPhases::Means(uint64_t channels, uint64_t stop_ns) const {
  const bool fit = channels != 0 && LoadRelaxed(channels_) == channels &&
                   LoadRelaxed(last_stop_ns_) == stop_ns && fit_.load(std::memory_order_relaxed);
  if (!fit) return std::nullopt;
  PhaseTimes means;
  for (size_t i = 0; i < means.size(); ++i) {
    means[i] = LoadRelaxed(sums_[i]) / static_cast<uint64_t>(std::popcount(channels));
  }
  return means;
}

}  // namespace nccl_exporter::plugin
