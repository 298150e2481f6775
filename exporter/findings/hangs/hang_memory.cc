// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/hangs/hang_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "exporter/findings/hangs/wait_graph.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/fair_shares.h"

namespace nccl_exporter::exporter {
namespace {

void Describe(const RankOnNode& rank, SeenRank& seen) {
  const collector::ProcessSnapshot& process = *rank.process;
  seen.process = {.file = process.file,
                  .segment = process.segment,
                  .is_alive = false,
                  .is_stopped = std::nullopt,
                  .pid = process.pid,
                  .uid = process.uid,
                  .host_name = process.host_name,
                  .executable = {},
                  .plugin_version = {},
                  .start_realtime_ns = process.start_realtime_ns,
                  .identity = process.identity,
                  .numbers = process.numbers,
                  .first_communicator = process.first_communicator,
                  .losses = {},
                  .communicators = {}};
  seen.communicator = *rank.communicator;
  seen.communicator.functions = {};
  seen.communicator.in_flight = {};
}

void Update(const GraphCommunicator& communicator, const GraphRank& rank, int64_t taken_ns,
            SeenRank& seen) {
  seen.is_absent = !rank.is_here;
  seen.has_waited =
      communicator.is_still && (seen.has_waited || (rank.waits && communicator.has_waited));
  seen.halted_snapshots = rank.HasHalted() && rank.is_behind
                              ? std::min(seen.halted_snapshots + 1, kHaltedSnapshots)
                              : 0;
  if (!rank.is_here) return;
  Describe(rank.rank, seen);
  if (rank.rank.process->is_alive) {
    seen.ended_realtime_ns = 0;
  } else if (seen.ended_realtime_ns == 0) {
    seen.ended_realtime_ns = taken_ns;
  }
}

}  // namespace

void HangMemory::Record(const WaitGraph& graph) {
  std::map<collector::CommunicatorKey, Ranks> kept;
  std::map<collector::CommunicatorKey, int64_t> longest_waits_ns;
  std::map<collector::CommunicatorKey, int64_t> abandoned_since;
  for (const GraphJob& job : graph.jobs()) {
    for (const GraphCommunicator& communicator : job.communicators) {
      // The node of the map stays in its place: the graph points to absent ranks in it.
      auto entry = communicators_.extract(communicator.key);
      Ranks& ranks = entry ? kept.insert(std::move(entry)).position->second
                           : kept.try_emplace(communicator.key).first->second;
      longest_waits_ns[communicator.key] =
          std::max(LongestWaitNs(communicator.key), communicator.waited_ns);
      if (communicator.is_abandoned) {
        const auto since = abandoned_since_realtime_ns_.find(communicator.key);
        abandoned_since[communicator.key] =
            since == abandoned_since_realtime_ns_.end() ? graph.taken_realtime_ns() : since->second;
      }
      std::set<uint64_t> here;
      for (const GraphRank& rank : communicator.ranks) {
        const uint64_t number = rank.rank.communicator->rank;
        Update(communicator, rank, graph.taken_realtime_ns(), ranks[number]);
        here.insert(number);
      }
      for (auto& [number, seen] : ranks) seen.is_absent = seen.is_absent || !here.contains(number);
    }
  }
  communicators_ = std::move(kept);
  longest_waits_ns_ = std::move(longest_waits_ns);
  abandoned_since_realtime_ns_ = std::move(abandoned_since);
  Fit();
}

void HangMemory::Fit() {
  const auto is_absent = [](const auto& rank) { return rank.second.is_absent; };
  std::map<uint64_t, size_t> absent;  // by user
  for (const auto& [key, ranks] : communicators_)
    absent[key.uid] += static_cast<size_t>(std::ranges::count_if(ranks, is_absent));
  std::map<uint64_t, size_t> shares = FairShares(absent, kMaxAbsentRanks);
  for (auto& [key, ranks] : communicators_) {
    size_t& left = shares[key.uid];
    forgotten_ += std::erase_if(ranks, [&](const auto& rank) {
      if (!is_absent(rank)) return false;
      if (left == 0) return true;
      --left;
      return false;
    });
  }
}

}  // namespace nccl_exporter::exporter
