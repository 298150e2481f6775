// SPDX-License-Identifier: Apache-2.0
// The ranks of this node gathered by communicator: what tables, page and history speak of.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

struct RankOnNode {
  const collector::ProcessSnapshot* process;
  const collector::CommunicatorSnapshot* communicator;
};

inline constexpr int64_t kNothingInFlight = std::numeric_limits<int64_t>::max();

// The ranks of one communicator on this node, by rank: at least one.
struct CommunicatorOnNode {
  collector::CommunicatorKey key;
  std::vector<RankOnNode> ranks;
  uint64_t max_started = 0;                    // most collectives started
  int64_t oldest_start_ns = kNothingInFlight;  // of what is in flight

  void Add(const RankOnNode& rank);
};

// Those in use whose identity is known, that with the oldest operation in flight first. Points into
// `node`.
std::vector<CommunicatorOnNode> CommunicatorsOnNode(const collector::NodeSnapshot& node);

}  // namespace nccl_exporter::exporter
