// SPDX-License-Identifier: Apache-2.0
// Peers of one communicator, each with counters of its own in the segment, up to a limit. Any
// thread; no waiting, no allocation, no system call.
//
// The plugin keeps the numbers of the peers in its own memory, and never reads those in the segment
// back. A peer takes the first free block by a compare-and-swap, in the order in which peers are
// met. The winner stores its number in the segment: before that the block has no counts, as an
// operation counts when it ends.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "plugin/network/network_operation.h"
#include "plugin/segment/atomics.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

inline void AddTimes(const NetworkTimes& times, layout::NetworkDirectionBlock& counters) {
  for (size_t i = 0; i < kNetworkStateCount; ++i) {
    if (times.state_ns[i] != 0) AddRelaxed(counters.wait_ns[i], times.state_ns[i]);
  }
  AddRelaxed(counters.bytes, times.bytes);
  AddRelaxed(counters.operations, 1);
}

class NetworkPeers {
 public:
  // Numbers of blocks take so many bits in the key of an operation.
  static constexpr int kBlockBits = 5;
  static constexpr uint32_t kOthers = 0;
  static_assert(layout::kNetworkPeerBlocks == 1 << kBlockBits);

  // Under the process's lock, while no event can carry the new context yet. `table`, full of zeros,
  // is the same at every call; nullptr: peers are not counted. Peers beyond `limit` are others.
  void Open(layout::NetworkPeerTable* table, uint32_t limit) {
    for (std::atomic<uint32_t>& number : numbers_) number.store(0, std::memory_order_relaxed);
    limit_.store(limit, std::memory_order_relaxed);
    table_.store(table, std::memory_order_release);
  }

  // Number of the block of a peer, a rank of the communicator. Negative: of the others.
  uint32_t BlockOf(int peer) {
    layout::NetworkPeerTable* const table = table_.load(std::memory_order_acquire);
    if (table == nullptr || peer < 0) return kOthers;
    const uint32_t wanted = static_cast<uint32_t>(peer) + 1;
    const uint32_t limit = limit_.load(std::memory_order_relaxed);
    for (uint32_t block = 1; block <= limit && block < numbers_.size(); ++block) {
      uint32_t present = numbers_[block].load(std::memory_order_relaxed);
      if (present == 0 &&
          numbers_[block].compare_exchange_strong(present, wanted, std::memory_order_relaxed)) {
        StoreRelease(table->blocks[block].number, wanted);
        return block;
      }
      if (present == wanted) return block;
    }
    return kOthers;
  }

  // An operation of a peer of this block has ended.
  void Add(uint32_t block, NetworkDirection direction, const NetworkTimes& times) {
    layout::NetworkPeerTable* const table = table_.load(std::memory_order_acquire);
    if (table == nullptr) return;
    AddTimes(times, table->blocks[block % layout::kNetworkPeerBlocks]
                        .directions[static_cast<size_t>(direction)]);
  }

 private:
  std::atomic<layout::NetworkPeerTable*> table_{nullptr};
  std::atomic<uint32_t> limit_{0};
  std::array<std::atomic<uint32_t>, layout::kNetworkPeerBlocks> numbers_{};  // 1 + rank; 0: free
};

}  // namespace nccl_exporter::plugin
