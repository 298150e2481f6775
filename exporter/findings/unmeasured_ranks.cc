// SPDX-License-Identifier: Apache-2.0
// Finds ranks that must be on this node and are not seen.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "exporter/findings/hangs/wait_graph.h"
#include "exporter/findings/node_troubles.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// None where the communicator spans nodes, may lack room, is young, or is ended. Finalized ranks
// are not missing.
MissingRanks MissingIn(const CommunicatorOnNode& communicator, int64_t settled_before_ns) {
  bool lives = false;
  if (communicator.may_lack_room) return {};
  for (const RankOnNode& rank : communicator.ranks) {
    if (rank.communicator->is_closed) continue;
    if (rank.communicator->nodes != 1) return {};
    if (rank.communicator->created_realtime_ns > settled_before_ns) return {};
    lives = lives || rank.process->is_alive;
  }
  return lives ? MissingOf(communicator.ranks) : MissingRanks();
}

Finding FindingOf(const CommunicatorOnNode& communicator, const MissingRanks& missing) {
  const RankOnNode& any = communicator.ranks.front();
  Finding finding =
      FindingAbout(FindingKind::kRanksUnmeasured, Severity::kInfo, communicator.key, any);
  for (const uint64_t rank : missing.first) {
    FoundRank& found = finding.culprits.emplace_back();
    found.standing = Standing::kMissing;
    found.rank = rank;
  }
  finding.more_culprits = missing.count - missing.first.size();
  finding.headline = fmt::format(
      "{} of {} ranks of {} of {} {} not measured: this node has all of them, and no segment of "
      "{}.",
      missing.count, communicator.key.ranks,
      CommunicatorText(communicator.key.id, any.communicator->name), finding.job,
      missing.count == 1 ? "is" : "are", missing.count == 1 ? "this one" : "these");
  finding.next =
      "Look for ranks without the plugin (nccl-exporter doctor lists processes without a segment), "
      "and in the job's log for ranks that have ended.";
  return finding;
}

}  // namespace

std::vector<Finding> UnmeasuredRanks(const collector::NodeSnapshot& node,
                                     std::chrono::nanoseconds settled) {
  const std::vector<CommunicatorOnNode> communicators = CommunicatorsWithFinalized(node);
  struct Most {
    const CommunicatorOnNode* communicator = nullptr;
    MissingRanks missing;
  };
  std::map<JobKey, Most> jobs;
  for (const CommunicatorOnNode& communicator : communicators) {
    MissingRanks missing = MissingIn(communicator, node.taken_realtime_ns - settled.count());
    Most& most = jobs[JobKeyOf(communicator.key)];
    if (missing.count > most.missing.count) most = {&communicator, std::move(missing)};
  }
  std::vector<Finding> findings;
  for (const auto& [key, most] : jobs) {
    if (most.communicator != nullptr)
      findings.push_back(FindingOf(*most.communicator, most.missing));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
