// SPDX-License-Identifier: Apache-2.0
// Processes that ended without finalizing. Those that finalized have ended properly, and are no
// finding.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exporter/findings/node_troubles.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kMostNamed = 4;  // in the headline

// One job of this node. It points into the snapshot.
struct Job {
  std::map<collector::FileKey, RankOnNode> killed;  // each with one of its communicators
  std::vector<const collector::ProcessSnapshot*> alive;
};

bool IsOpen(const collector::CommunicatorSnapshot& communicator) {
  return communicator.has_identity && !communicator.is_overflow && !communicator.is_closed;
}

int64_t LastActivity(const collector::ProcessSnapshot& process) {
  int64_t last_ns = 0;
  for (const collector::CommunicatorSnapshot& communicator : process.communicators)
    last_ns = std::max(last_ns, communicator.last_progress_realtime_ns);
  return last_ns;
}

void Add(const collector::ProcessSnapshot& process, Job& job) {
  for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
    if (!IsOpen(communicator)) continue;
    if (process.is_alive) {
      job.alive.push_back(&process);
      return;
    }
    // The largest one tells most about the rank.
    const auto [found, is_new] =
        job.killed.try_emplace(process.file, RankOnNode{&process, &communicator});
    if (!is_new && communicator.ranks > found->second.communicator->ranks)
      found->second.communicator = &communicator;
  }
}

// Other ranks went on, or wait, for so long after a process was last seen to do anything. At the
// end of a job its processes end one after the other.
constexpr int64_t kGoneOnNs = 10'000'000'000;

bool WaitsOrHasGoneOn(const collector::ProcessSnapshot& process, int64_t since_ns) {
  return std::ranges::any_of(process.communicators, [&](const auto& communicator) {
    return IsOpen(communicator) &&
           (!communicator.in_flight.empty() || !communicator.completion_is_known ||
            communicator.last_progress_realtime_ns > since_ns + kGoneOnNs);
  });
}

// Whether a process of the job lives that was there at the time, and has need of others since.
// Those of a restart are younger.
bool IsMissed(const RankOnNode& rank, const Job& job) {
  const int64_t last_ns = LastActivity(*rank.process);
  return std::ranges::any_of(job.alive, [&](const collector::ProcessSnapshot* process) {
    return process->start_realtime_ns < last_ns && WaitsOrHasGoneOn(*process, last_ns);
  });
}

std::string ProcessesText(size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "process" : "processes");
}

std::string Headline(const Finding& finding, const std::vector<const RankOnNode*>& ranks) {
  std::string names;
  for (size_t i = 0; i < std::min(kMostNamed, ranks.size()); ++i) {
    const collector::CommunicatorSnapshot& communicator = *ranks[i]->communicator;
    names += (i == 0 ? "" : ", ") +
             RankText(finding.culprits[i], CommunicatorText(communicator.id, communicator.name));
  }
  if (ranks.size() > kMostNamed) names += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return fmt::format("{} of {} {} ended without finalizing NCCL: {}.", ProcessesText(ranks.size()),
                     finding.job, ranks.size() == 1 ? "has" : "have", names);
}

Finding FindingOf(const Job& job) {
  std::vector<const RankOnNode*> ranks;
  for (const auto& [file, rank] : job.killed) ranks.push_back(&rank);
  const bool any_missed =
      std::ranges::any_of(ranks, [&](const RankOnNode* rank) { return IsMissed(*rank, job); });
  // In a job that goes on, without those of the attempt before.
  if (any_missed)
    std::erase_if(ranks, [&](const RankOnNode* rank) { return !IsMissed(*rank, job); });
  std::ranges::stable_sort(ranks, {},
                           [](const RankOnNode* rank) { return LastActivity(*rank->process); });
  const collector::ProcessSnapshot& first = *ranks.front()->process;
  Finding finding;
  finding.kind = FindingKind::kProcessKilled;
  finding.severity = any_missed ? Severity::kWarning : Severity::kInfo;
  finding.uid = first.uid;
  finding.job = JobText(first);
  for (const RankOnNode* rank : ranks)
    finding.culprits.push_back(FoundRankOf(*rank, Standing::kKilled));
  finding.since_realtime_ns = LastActivity(first);
  finding.headline = Headline(finding, ranks);
  finding.cost = fmt::format(
      "{} of {} on this node", ranks.size(),
      ProcessesText((any_missed ? ranks.size() : job.killed.size()) + job.alive.size()));
  if (finding.since_realtime_ns != 0)
    finding.evidence.emplace_back(fmt::format("last activity of pid {}", first.pid),
                                  ClockText(finding.since_realtime_ns));
  if (!any_missed) return finding;
  finding.runbook = "NCCLRanksMissing";
  finding.next = fmt::format(
      "Look in the job's log and in dmesg (out of memory, XID) why pid {} on {} has ended.",
      first.pid, Printable(first.host_name));
  return finding;
}

}  // namespace

std::vector<Finding> KilledProcesses(const collector::NodeSnapshot& node) {
  std::map<std::tuple<uint64_t, std::string, std::string>, Job> jobs;
  for (const collector::ProcessSnapshot& process : node.processes) {
    Add(process,
        jobs[{process.uid, process.Identity("SLURM_JOB_ID"), process.Identity("POD_NAMESPACE")}]);
  }
  std::vector<Finding> findings;
  for (const auto& [key, job] : jobs) {
    if (!job.killed.empty()) findings.push_back(FindingOf(job));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
