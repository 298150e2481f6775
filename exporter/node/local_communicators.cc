// SPDX-License-Identifier: Apache-2.0
// Gathering by key.
#include "exporter/node/local_communicators.h"

#include <algorithm>
#include <map>
#include <utility>

namespace nccl_exporter::exporter {

void CommunicatorOnNode::Add(const RankOnNode& rank) {
  ranks.push_back(rank);
  max_started = std::max(max_started, rank.communicator->started_sequence);
  if (!rank.communicator->completion_is_known || rank.communicator->in_flight.empty()) return;
  oldest_start_ns =
      std::min(oldest_start_ns, rank.communicator->in_flight.front().start_realtime_ns);
}

std::vector<CommunicatorOnNode> CommunicatorsOnNode(const collector::NodeSnapshot& node) {
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

}  // namespace nccl_exporter::exporter
