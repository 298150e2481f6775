// SPDX-License-Identifier: Apache-2.0
// The ranks of this node, by communicator and by job.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// A process and one of its GPUs.
using GpuOfProcess = std::pair<collector::FileKey, int>;

struct RankOnNode {
  const collector::ProcessSnapshot* process;
  const collector::CommunicatorSnapshot* communicator;

  GpuOfProcess gpu() const { return {process->file, communicator->gpu_index}; }
};

inline constexpr int64_t kNothingInFlight = std::numeric_limits<int64_t>::max();

// Identity of one user's job.
struct JobKey {
  uint64_t uid = 0;
  std::string job;         // collector::ProcessSnapshot::JobName(); empty: not known
  std::string name_space;  // of Kubernetes

  auto operator<=>(const JobKey&) const = default;
};
inline JobKey JobKeyOf(const collector::ProcessSnapshot& process) {
  return {process.uid, process.JobName(), process.Identity("POD_NAMESPACE")};
}
inline JobKey JobKeyOf(const collector::CommunicatorKey& key) {
  return {key.uid, key.job, key.name_space};
}

// The ranks of one communicator on this node, by rank: at least one.
struct CommunicatorOnNode {
  collector::CommunicatorKey key;
  std::vector<RankOnNode> ranks;
  uint64_t max_started = 0;                    // most collectives started
  int64_t oldest_start_ns = kNothingInFlight;  // of what is in flight

  void Add(const RankOnNode& rank);
};

inline void CommunicatorOnNode::Add(const RankOnNode& rank) {
  ranks.push_back(rank);
  max_started = std::max(max_started, rank.communicator->started_sequence);
  if (!rank.communicator->completion_is_known || rank.communicator->in_flight.empty()) return;
  oldest_start_ns =
      std::min(oldest_start_ns, rank.communicator->in_flight.front().start_realtime_ns);
}

// Whether other nodes take part.
inline bool SpansNodes(const CommunicatorOnNode& communicator) {
  const collector::CommunicatorSnapshot& here = *communicator.ranks.front().communicator;
  return here.nodes != 0 ? here.nodes > 1 : communicator.ranks.size() < here.ranks;
}

// Communicators in use whose identity is known, the one with the oldest operation in flight first.
// They point into `node`.
inline std::vector<CommunicatorOnNode> CommunicatorsOnNode(const collector::NodeSnapshot& node) {
  std::map<collector::CommunicatorKey, CommunicatorOnNode> found;
  for (const collector::ProcessSnapshot& process : node.processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.has_identity || communicator.is_overflow || communicator.is_closed)
        continue;
      found[collector::CommunicatorKeyOf(process, communicator)].Add({&process, &communicator});
    }
  }
  std::vector<CommunicatorOnNode> communicators;
  for (auto& [key, communicator] : found) {
    std::ranges::stable_sort(communicator.ranks, {},
                             [](const RankOnNode& rank) { return rank.communicator->rank; });
    communicator.key = key;
    communicators.push_back(std::move(communicator));
  }
  std::ranges::stable_sort(communicators, {}, &CommunicatorOnNode::oldest_start_ns);
  return communicators;
}

// Points into `communicators`, which outlive it.
using CommunicatorsByKey = std::map<collector::CommunicatorKey, const CommunicatorOnNode*>;
inline CommunicatorsByKey ByKey(const std::vector<CommunicatorOnNode>& communicators) {
  CommunicatorsByKey by_key;
  for (const CommunicatorOnNode& communicator : communicators)
    by_key.emplace(communicator.key, &communicator);
  return by_key;
}

}  // namespace nccl_exporter::exporter
