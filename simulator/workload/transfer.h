// SPDX-License-Identifier: Apache-2.0
// Data on which the network of one launch depends: starts and ends of all ranks, and hops that are
// slow. Every process has the same, so that each can compute its own side of every hop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "simulator/workload/group.h"

namespace nccl_exporter::sim {

// Factors of the time of a step on a hop, by cause; 1: as long as anywhere.
struct HopTimes {
  double wire = 1;      // adapter or link
  double receiver = 1;  // the receiver's adapter takes up receives late
  double flush = 1;     // of what was received, on its way to the GPU

  bool operator==(const HopTimes&) const = default;
};

// Transfer of one launch on one communicator; ranks are those of the communicator.
struct LaunchTransfer {
  struct RankTimes {
    int64_t launched_ns;  // the rank's proxy thread gets the operations
    int64_t start_ns;     // of its kernel
    int64_t stop_ns;
  };
  std::vector<RankTimes> ranks;                    // kNever where a rank takes no part
  std::map<std::pair<int, int>, HopTimes> hops{};  // by sender and receiver; only the slow ones

  HopTimes HopOf(int sender, int receiver) const {
    const auto hop = hops.find({sender, receiver});
    return hop == hops.end() ? HopTimes{} : hop->second;
  }
};

// A collective sends from node to node: each rank to the one of its place on the next node. On one
// node, where tests play a network, it sends to the next rank.
inline int RingDistance(const Communicator& communicator) {
  return communicator.nodes > 1 ? std::max(1, communicator.ranks() / communicator.nodes) : 1;
}
inline int RingNeighbour(const Communicator& communicator, int rank, bool is_next) {
  const int distance = RingDistance(communicator);
  const int ranks = communicator.ranks();
  return (rank + (is_next ? distance : ranks - distance)) % ranks;
}

}  // namespace nccl_exporter::sim
