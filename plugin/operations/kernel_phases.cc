// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/kernel_phases.h"

#include <bit>

namespace nccl_exporter::plugin {

void KernelPhases::Begin(uint64_t ticket) {
  StoreRelaxed(channels_, 0);
  StoreRelaxed(last_stop_ns_, 0);
  for (AtomicU64& sum : sums_) StoreRelaxed(sum, 0);
  fit_.store(true, std::memory_order_relaxed);
  StoreRelaxed(ticket_, ticket);
}

void KernelPhases::Start(uint64_t ticket, uint32_t channel, uint32_t phase, uint64_t time_ns,
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

bool KernelPhases::Stop(uint64_t ticket, uint64_t time_ns) {
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

std::optional<PhaseTimes> KernelPhases::Means(uint64_t channels, uint64_t stop_ns) const {
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
