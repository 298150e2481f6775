// SPDX-License-Identifier: Apache-2.0
// The ranks of this node, by communicator and by job.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// A process and one of its GPUs, by its number on the node, else by a hash of its UUID and address.
// GPUs of which nothing is known are one.
using GpuOfProcess = std::pair<collector::FileKey, uint64_t>;

struct RankOnNode {
  const collector::ProcessSnapshot* process;
  const collector::CommunicatorSnapshot* communicator;

  GpuOfProcess gpu() const {
    const collector::CommunicatorSnapshot& here = *communicator;
    if (here.gpu_index >= 0) return {process->file, here.gpu_index};
    return {process->file, std::hash<std::string>()(here.gpu_uuid + here.pci_bus_id)};
  }
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
  // Ranks of it may be here that have no room, in their segment or in the daemon: none is missing.
  bool may_lack_room = false;

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

// Counted once for a communicator without a slot, and not for each of its operations.
inline constexpr Loss kLossesOfCommunicators[] = {Loss::kNoFreeCommunicatorSlot,
                                                  Loss::kReservationFailed};

// Jobs and users with a living process whose communicators do not all have room.
struct RoomShortage {
  std::set<JobKey> jobs;
  std::set<uint64_t> users;  // some of whose segments or communicators the daemon does not follow

  explicit RoomShortage(const collector::NodeSnapshot& node) {
    for (const collector::ProcessSnapshot& process : node.processes) {
      const auto lost = [&](Loss loss) { return process.losses[static_cast<size_t>(loss)] != 0; };
      if (process.is_alive &&
          (process.unread_in_use != 0 || std::ranges::any_of(kLossesOfCommunicators, lost)))
        jobs.insert(JobKeyOf(process));
    }
    for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
      if (trouble.error == collector::SegmentError::kTooManySegments && trouble.present != 0)
        users.insert(trouble.uid.value_or(trouble.file_uid));
    }
  }
};

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
  const RoomShortage shortage(node);
  std::vector<CommunicatorOnNode> communicators;
  for (auto& [key, communicator] : found) {
    std::ranges::stable_sort(communicator.ranks, {},
                             [](const RankOnNode& rank) { return rank.communicator->rank; });
    communicator.key = key;
    communicator.may_lack_room =
        shortage.users.contains(key.uid) || shortage.jobs.contains(JobKeyOf(key));
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
