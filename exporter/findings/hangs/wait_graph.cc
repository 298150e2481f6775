// SPDX-License-Identifier: Apache-2.0
// Collects the ranks and communicators of the graph.
#include "exporter/findings/hangs/wait_graph.h"

#include <algorithm>
#include <set>

namespace nccl_exporter::exporter {
namespace {

// Living processes with communicators that there was no room for: a rank of theirs is not missing.
std::set<collector::FileKey> CutProcesses(const collector::NodeSnapshot& node) {
  std::set<collector::FileKey> cut;
  for (const collector::ProcessSnapshot& process : node.processes) {
    if (process.is_alive && process.unread_in_use != 0) cut.insert(process.file);
  }
  return cut;
}

GraphCommunicator CommunicatorOf(const CommunicatorOnNode& found, const HangMemory& memory,
                                 const std::set<collector::FileKey>& cut) {
  GraphCommunicator communicator{.key = found.key, .ranks = {}};
  const SeenRanks& seen = memory.Of(found.key).ranks;
  std::set<uint64_t> numbers, living;
  for (const RankOnNode& rank : found.ranks) {
    if (rank.process->is_alive) living.insert(rank.communicator->rank);
  }
  for (const RankOnNode& rank : found.ranks) {
    const uint64_t number = rank.communicator->rank;
    // A segment of an ended process may be left beside that of a living one with the same rank.
    if (!rank.process->is_alive && living.contains(number)) continue;
    const auto place = seen.find(number);
    communicator.ranks.push_back(
        {.rank = rank, .seen = place == seen.end() ? nullptr : &place->second});
    numbers.insert(number);
  }
  for (const auto& [number, rank] : seen) {
    if (!rank.is_absent || numbers.contains(number)) continue;
    if (cut.contains(rank.process->file)) continue;
    communicator.ranks.push_back(
        {.rank = {rank.process.get(), &rank.communicator}, .seen = &rank, .is_here = false});
    numbers.insert(number);
  }
  communicator.may_lack_room = found.may_lack_room;
  communicator.is_complete = found.key.ranks != 0 && numbers.size() >= found.key.ranks;
  return communicator;
}

}  // namespace

std::vector<CommunicatorOnNode> CommunicatorsWithFinalized(const collector::NodeSnapshot& node) {
  std::vector<CommunicatorOnNode> communicators = CommunicatorsOnNode(node);
  std::map<collector::CommunicatorKey, CommunicatorOnNode*> by_key;
  for (CommunicatorOnNode& communicator : communicators) by_key[communicator.key] = &communicator;
  for (const collector::ProcessSnapshot& process : node.processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.has_identity || communicator.is_overflow || !communicator.is_closed)
        continue;
      const auto found = by_key.find(collector::CommunicatorKeyOf(process, communicator));
      if (found != by_key.end()) found->second->Add({&process, &communicator});
    }
  }
  return communicators;
}

std::vector<GraphJob> WaitGraphs(const collector::NodeSnapshot& node,
                                 const std::vector<CommunicatorOnNode>& communicators,
                                 const HangMemory& memory, const Thresholds& times,
                                 std::chrono::nanoseconds threshold, Suspects suspects,
                                 std::chrono::nanoseconds held) {
  std::map<JobKey, GraphJob> jobs;
  const std::set<collector::FileKey> cut = CutProcesses(node);
  for (const CommunicatorOnNode& found : communicators) {
    GraphCommunicator communicator = CommunicatorOf(found, memory, cut);
    const bool any_lives = std::ranges::any_of(communicator.ranks, [](const GraphRank& rank) {
      return rank.is_here && rank.rank.process->is_alive && !rank.rank.communicator->is_closed;
    });
    if (!any_lives) continue;
    jobs[JobKeyOf(found.key)].communicators.push_back(std::move(communicator));
  }
  for (const collector::ProcessSnapshot& process : node.processes) {
    const auto job = jobs.find(JobKeyOf(process));
    if (!process.is_alive || job == jobs.end()) continue;
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      int64_t& last_ns =
          job->second.last_progress_realtime_ns[RankOnNode{&process, &communicator}.gpu()];
      last_ns = std::max(last_ns, communicator.last_progress_realtime_ns);
      // Its creation is after now if the clock has been set back since.
      if (communicator.created_realtime_ns <= node.taken_realtime_ns)
        last_ns = std::max(last_ns, communicator.created_realtime_ns);
    }
  }
  std::vector<GraphJob> graphs;
  for (auto& [key, job] : jobs) {
    ApplyWaitRules(job, node.taken_realtime_ns - held.count(), times, threshold, suspects);
    graphs.push_back(std::move(job));
  }
  return graphs;
}

}  // namespace nccl_exporter::exporter
