// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/unmeasured_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// Users some of whose segments or communicators found no place.
std::set<uint64_t> UsersWithoutRoom(const collector::NodeSnapshot& node) {
  std::set<uint64_t> users;
  for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
    if (trouble.error == collector::SegmentError::kTooManySegments && trouble.present != 0)
      users.insert(trouble.uid.value_or(trouble.file_uid));
  }
  for (const collector::ProcessSnapshot& process : node.processes) {
    if (std::ranges::any_of(process.communicators, &collector::CommunicatorSnapshot::is_overflow))
      users.insert(process.uid);
  }
  return users;
}

using RanksOf = std::map<collector::CommunicatorKey, std::set<uint64_t>>;

// Ranks that have finalized a communicator, and are still served: they are not missing.
RanksOf FinalizedRanks(const collector::NodeSnapshot& node) {
  RanksOf ranks;
  for (const collector::ProcessSnapshot& process : node.processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.has_identity && communicator.is_closed)
        ranks[collector::CommunicatorKeyOf(process, communicator)].insert(communicator.rank);
    }
  }
  return ranks;
}

// Ranks that are not here, of a communicator that has all of them on this node. `here` are those
// that have finalized it.
uint64_t LackingIn(const CommunicatorOnNode& communicator, std::set<uint64_t> here,
                   int64_t settled_before_ns) {
  bool lives = false;
  for (const RankOnNode& rank : communicator.ranks) {
    if (rank.communicator->nodes != 1) return 0;
    if (rank.communicator->created_realtime_ns > settled_before_ns) return 0;
    lives = lives || rank.process->is_alive;
    here.insert(rank.communicator->rank);
  }
  const uint64_t ranks = communicator.key.ranks;
  return lives && ranks > here.size() ? ranks - here.size() : 0;
}

std::string NameOf(const CommunicatorOnNode& communicator) {
  return CommunicatorText(communicator.key.id, communicator.ranks.front().communicator->name);
}

Finding FindingOf(const CommunicatorOnNode& communicator, std::set<uint64_t> here,
                  uint64_t lacking) {
  Finding finding;
  finding.kind = FindingKind::kRanksUnmeasured;
  finding.severity = Severity::kInfo;
  finding.communicator = communicator.key;
  finding.communicator_name = Printable(communicator.ranks.front().communicator->name);
  finding.uid = communicator.key.uid;
  finding.job = JobText(*communicator.ranks.front().process);
  for (const RankOnNode& rank : communicator.ranks) here.insert(rank.communicator->rank);
  // The number of ranks comes from a file, and may be any.
  for (uint64_t rank = 0;
       rank < communicator.key.ranks && finding.culprits.size() < kMostFoundRanks; ++rank) {
    if (here.contains(rank)) continue;
    FoundRank& missing = finding.culprits.emplace_back();
    missing.standing = Standing::kMissing;
    missing.rank = rank;
  }
  finding.more_culprits = lacking - finding.culprits.size();
  finding.headline = fmt::format(
      "{} of {} ranks of {} of {} {} not measured: this node has all of them, and no segment of {}.",
      lacking, communicator.key.ranks, NameOf(communicator), finding.job,
      lacking == 1 ? "is" : "are", lacking == 1 ? "this one" : "these");
  finding.next =
      "Look for ranks without the plugin (nccl-exporter doctor lists processes without a segment), "
      "and in the job's log for ranks that have ended.";
  return finding;
}

}  // namespace

std::vector<Finding> UnmeasuredRanks(const collector::NodeSnapshot& node,
                                     const std::vector<CommunicatorOnNode>& communicators,
                                     std::chrono::nanoseconds settled) {
  const std::set<uint64_t> without_room = UsersWithoutRoom(node);
  RanksOf finalized = FinalizedRanks(node);
  struct Most {
    const CommunicatorOnNode* communicator = nullptr;
    uint64_t lacking = 0;
  };
  std::map<JobKey, Most> jobs;
  for (const CommunicatorOnNode& communicator : communicators) {
    if (without_room.contains(communicator.key.uid)) continue;
    const uint64_t lacking = LackingIn(communicator, finalized[communicator.key],
                                       node.taken_realtime_ns - settled.count());
    Most& most = jobs[JobKeyOf(communicator.key)];
    if (lacking > most.lacking) most = {&communicator, lacking};
  }
  std::vector<Finding> findings;
  for (const auto& [key, most] : jobs) {
    if (most.communicator != nullptr)
      findings.push_back(FindingOf(*most.communicator, finalized[most.communicator->key],
                                   most.lacking));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
