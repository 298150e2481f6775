// SPDX-License-Identifier: Apache-2.0
#include "simulator/nccl/communicator_set.h"

#include <fmt/format.h>

#include <cstdio>

#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {

bool CommunicatorSet::IsRecreatedAt(int64_t step) const {
  return !live_.empty() && GenerationOf(step) != generation_;
}

void CommunicatorSet::Make(int number, int64_t now_ns) {
  const Communicator& shape = communicators_[static_cast<size_t>(number)];
  // All ranks get one id, and each new communicator another one.
  const uint64_t id = HashRandom(options_.seed, number, generation_, 0x636f6d6d);
  auto made = std::make_unique<LiveCommunicator>(shape, id, shape.RankOf(global_rank_), options_,
                                                 make_sink_(shape));
  use_gpu_();
  const char* name = made->is_named ? shape.name.c_str() : nullptr;
  plugin_.Init({id, name, shape.nodes, shape.ranks(), made->rank}, &made->context, now_ns);
  made->NoteMask(plugin_.Mask(), options_.release);
  live_[number] = made.get();
  all_.push_back(std::move(made));
}

void CommunicatorSet::UpdateTo(int64_t step, int64_t now_ns) {
  if (IsRecreatedAt(step)) FinalizeAll(now_ns);
  generation_ = GenerationOf(step);
  for (size_t i = 0; i < communicators_.size(); ++i) {
    const int number = static_cast<int>(i);
    const bool is_member = communicators_[i].RankOf(global_rank_) >= 0;
    if (is_member && communicators_[i].first_step <= step && !live_.contains(number))
      Make(number, now_ns);
  }
}

void CommunicatorSet::FinalizeAll(int64_t now_ns) {
  for (const auto& [number, communicator] : live_) {
    if (Hangs(*communicator))
      continue;  // NCCL finalizes a plugin's context after its proxy thread has ended
    plugin_.Finalize(communicator->context, now_ns);
  }
  live_.clear();
}

// Whether ncclCommDestroy would wait forever. The job's events are all delivered, and no kernel
// runs.
bool CommunicatorSet::Hangs(LiveCommunicator& communicator) {
  if (!options_.release.WaitsForEventsAtDestroy()) return false;
  communicator.destroy_hang = communicator.Unending();
  if (!communicator.destroy_hang) return false;
  has_hung_ = true;
  fmt::print(stderr, "nccl-sim: {}\n", DestroyHangText(communicator, global_rank_));
  return true;
}

std::string DestroyHangText(const LiveCommunicator& communicator, int global_rank) {
  const DestroyHang& hang = *communicator.destroy_hang;
  return fmt::format(
      "ncclCommDestroy would never return: rank {}, communicator {} ({:016x}), {} #{} waits on "
      "channel {} for entry {} to show {} or more, and it shows {}",
      global_rank, communicator.shape.name, communicator.id, TraitsOf(hang.wait.wait.function).name,
      hang.wait.wait.number, hang.channel, hang.wait.entry, hang.wait.wait.counter,
      hang.wait.shown);
}

}  // namespace nccl_exporter::sim
