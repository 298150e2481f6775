// SPDX-License-Identifier: Apache-2.0
// Finds processes that ended without finalizing. The end of a process is known by the lock of its
// segment, which the kernel releases, and never by its pid.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/findings/node_troubles.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// A living process. Times are of CLOCK_MONOTONIC: the times of day of an ended process are those of
// its last reading, and the clock may have been set since.
struct Living {
  int64_t start_monotonic_ns = 0;
  int64_t last_progress_monotonic_ns = 0;  // in communicators that are open
  bool waits = false;                      // something is in flight, or may be
};

// One job of this node. It points into the snapshot.
struct Job {
  std::map<collector::FileKey, RankOnNode> killed;  // each with one of its communicators
  std::map<collector::FileKey, Living> alive;
};

bool IsOpen(const collector::CommunicatorSnapshot& communicator) {
  return communicator.has_identity && !communicator.is_overflow && !communicator.is_closed;
}

// The latest of the times `member` of its communicators; 0: never.
int64_t LastActivity(const RankOnNode& rank, int64_t collector::CommunicatorSnapshot::*member) {
  int64_t last_ns = 0;
  for (const collector::CommunicatorSnapshot& communicator : rank.process->communicators)
    last_ns = std::max(last_ns, communicator.*member);
  return last_ns;
}
int64_t LastMonotonicNs(const RankOnNode& rank) {
  return LastActivity(rank, &collector::CommunicatorSnapshot::last_progress_monotonic_ns);
}

void Add(const collector::ProcessSnapshot& process, Job& job) {
  for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
    if (!IsOpen(communicator)) continue;
    if (process.is_alive) {
      Living& living = job.alive[process.file];
      living.start_monotonic_ns = process.start_monotonic_ns;
      living.waits |= !communicator.in_flight.empty() || !communicator.completion_is_known;
      living.last_progress_monotonic_ns =
          std::max(living.last_progress_monotonic_ns, communicator.last_progress_monotonic_ns);
      continue;
    }
    // The largest communicator is the world, or the nearest to it.
    RankOnNode& rank =
        job.killed.try_emplace(process.file, RankOnNode{&process, &communicator}).first->second;
    if (communicator.ranks > rank.communicator->ranks) rank.communicator = &communicator;
  }
}

// Ranks that go on for so long after a process was last active miss it. At the end of a job its
// processes end one after the other.
constexpr int64_t kGoneOnNs = 10'000'000'000;

// Whether a living process of the job is older than the last activity of `rank`, and waits or has
// gone on since. The processes of a restart are younger.
bool IsMissed(const RankOnNode& rank, const Job& job,
              const std::set<collector::FileKey>& just_ended) {
  const int64_t last_ns = LastMonotonicNs(rank);
  const bool has_just_ended = just_ended.contains(rank.process->file);
  return std::ranges::any_of(job.alive, [&](const auto& alive) {
    const Living& living = alive.second;
    return living.start_monotonic_ns < last_ns &&
           ((living.waits && !has_just_ended) ||
            living.last_progress_monotonic_ns > last_ns + kGoneOnNs);
  });
}

std::string ProcessesText(size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "process" : "processes");
}

constexpr size_t kNamedInHeadline = 4;

std::string Headline(const Finding& finding, const std::vector<const RankOnNode*>& ranks) {
  const auto name_of = [&](size_t i) {
    const collector::CommunicatorSnapshot& communicator = *ranks[i]->communicator;
    return RankText(finding.culprits[i], CommunicatorText(communicator.id, communicator.name));
  };
  return fmt::format("{} of {} {} ended without finalizing NCCL: {}.", ProcessesText(ranks.size()),
                     finding.job, ranks.size() == 1 ? "has" : "have",
                     ListText(ranks.size(), name_of, kNamedInHeadline));
}

Finding FindingOf(const Job& job, const std::set<collector::FileKey>& just_ended) {
  std::vector<const RankOnNode*> ranks;
  for (const auto& [file, rank] : job.killed) ranks.push_back(&rank);
  std::vector<const RankOnNode*> missed;
  for (const RankOnNode* rank : ranks) {
    if (IsMissed(*rank, job, just_ended)) missed.push_back(rank);
  }
  const bool any_missed = !missed.empty();
  // Processes of an earlier attempt are left out of a job that goes on.
  if (any_missed) ranks = std::move(missed);
  std::ranges::stable_sort(ranks, {},
                           [](const RankOnNode* rank) { return LastMonotonicNs(*rank); });
  const collector::ProcessSnapshot& first = *ranks.front()->process;
  Finding finding;
  finding.kind = FindingKind::kProcessKilled;
  finding.severity = any_missed ? Severity::kWarning : Severity::kInfo;
  finding.uid = first.uid;
  finding.job = JobText(first);
  finding.job_name = first.JobName();
  finding.name_space = first.Identity("POD_NAMESPACE");
  for (size_t i = 0; i < std::min(kMostFoundRanks, ranks.size()); ++i)
    finding.culprits.push_back(FoundRankOf(*ranks[i], Standing::kKilled));
  finding.more_culprits = ranks.size() - finding.culprits.size();
  finding.since_realtime_ns =
      LastActivity(*ranks.front(), &collector::CommunicatorSnapshot::last_progress_realtime_ns);
  finding.headline = Headline(finding, ranks);
  const size_t all = (any_missed ? ranks.size() : job.killed.size()) + job.alive.size();
  finding.cost = fmt::format("{} of {} on this node", ranks.size(), ProcessesText(all));
  finding.numbers = {{"ended_processes", ranks.size()}, {"processes", all}};
  if (finding.since_realtime_ns != 0)
    finding.evidence.emplace_back(fmt::format("last activity of pid {}", first.pid),
                                  ClockText(finding.since_realtime_ns));
  if (!any_missed) return finding;
  finding.runbook = "NCCLRanksMissing";
  finding.next = fmt::format(
      "Look in the job's log and in dmesg (out of memory, XID) why pid {} on {} has ended.",
      first.pid, Printable(first.NodeName()));
  return finding;
}

}  // namespace

std::vector<Finding> KilledProcesses(const collector::NodeSnapshot& node,
                                     const std::set<collector::FileKey>& just_ended) {
  std::map<JobKey, Job> jobs;
  for (const collector::ProcessSnapshot& process : node.processes)
    Add(process, jobs[JobKeyOf(process)]);
  std::vector<Finding> findings;
  for (const auto& [key, job] : jobs) {
    if (!job.killed.empty()) findings.push_back(FindingOf(job, just_ended));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
