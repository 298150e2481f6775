// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/hangs/hang_memory.h"

#include <algorithm>
#include <utility>

#include "exporter/findings/hangs/wait_graph.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/fair_shares.h"

namespace nccl_exporter::exporter {
namespace {

// Copies of what names a process, by process of the latest snapshot.
using SeenProcesses =
    std::map<const collector::ProcessSnapshot*, std::shared_ptr<const collector::ProcessSnapshot>>;

// Copies what names a rank. Its counts may be large, and say nothing once it is gone.
void Describe(const RankOnNode& rank, SeenProcesses& processes, SeenRank& seen) {
  const collector::ProcessSnapshot& process = *rank.process;
  std::shared_ptr<const collector::ProcessSnapshot>& copy = processes[&process];
  if (copy == nullptr) {
    collector::ProcessSnapshot named;
    named.file = process.file;
    named.pid = process.pid;
    named.uid = process.uid;
    named.host_name = process.host_name;
    named.identity = process.identity;
    named.first_communicator = process.first_communicator;
    copy = std::make_shared<const collector::ProcessSnapshot>(std::move(named));
  }
  seen.process = copy;
  seen.communicator = *rank.communicator;
  seen.communicator.functions = {};
  seen.communicator.in_flight = {};
}

void Update(const GraphCommunicator& communicator, const GraphRank& rank, int64_t taken_ns,
            SeenProcesses& processes, SeenRank& seen) {
  seen.is_absent = !rank.is_here;
  seen.has_waited =
      communicator.is_still && (seen.has_waited || (rank.waits && communicator.has_waited));
  seen.halted_snapshots = rank.HasHalted() && rank.is_behind
                              ? std::min(seen.halted_snapshots + 1, kHaltedSnapshots)
                              : 0;
  if (!rank.is_here) return;
  Describe(rank.rank, processes, seen);
  if (rank.rank.process->is_alive) {
    seen.ended_realtime_ns = 0;
  } else if (seen.ended_realtime_ns == 0) {
    seen.ended_realtime_ns = taken_ns;
  }
}

}  // namespace

void HangMemory::Record(const std::vector<GraphJob>& graphs, int64_t taken_realtime_ns) {
  std::map<collector::CommunicatorKey, SeenCommunicator> kept;
  SeenProcesses processes;
  for (const GraphJob& job : graphs) {
    for (const GraphCommunicator& communicator : job.communicators) {
      // The node of the map stays in its place: the graph points to absent ranks in it.
      auto entry = communicators_.extract(communicator.key);
      SeenCommunicator& seen =
          entry ? kept.insert(std::move(entry)).position->second : kept[communicator.key];
      seen.longest_wait_ns = std::max(seen.longest_wait_ns, communicator.waited_ns);
      if (!communicator.is_abandoned) {
        seen.abandoned_since_realtime_ns = 0;
      } else if (seen.abandoned_since_realtime_ns == 0) {
        seen.abandoned_since_realtime_ns = taken_realtime_ns;
      }
      for (auto& [number, rank] : seen.ranks) rank.is_absent = true;
      for (const GraphRank& rank : communicator.ranks)
        Update(communicator, rank, taken_realtime_ns, processes,
               seen.ranks[rank.rank.communicator->rank]);
    }
  }
  communicators_ = std::move(kept);
  Fit();
}

void HangMemory::Fit() {
  const auto is_absent = [](const auto& rank) { return rank.second.is_absent; };
  std::map<uint64_t, size_t> absent;  // by user
  for (const auto& [key, seen] : communicators_)
    absent[key.uid] += static_cast<size_t>(std::ranges::count_if(seen.ranks, is_absent));
  std::map<uint64_t, size_t> shares = EqualParts(absent, kMaxAbsentRanks);
  for (auto& [key, seen] : communicators_) {
    size_t& left = shares[key.uid];
    forgotten_ += std::erase_if(seen.ranks, [&](const auto& rank) {
      if (!is_absent(rank)) return false;
      if (left == 0) return true;
      --left;
      return false;
    });
  }
}

}  // namespace nccl_exporter::exporter
