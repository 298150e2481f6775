// SPDX-License-Identifier: Apache-2.0
// Finds jobs whose operations have no GPU times.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "exporter/findings/node_troubles.h"
#include "exporter/findings/words.h"
#include "proto/timing_source.h"

namespace nccl_exporter::exporter {
namespace {

struct UntimedJob {
  std::vector<const CommunicatorOnNode*> untimed;
  size_t communicators = 0;  // of several ranks
  std::set<TimingReason> reasons;
};

bool HasGpuTimes(const collector::CommunicatorSnapshot& communicator) {
  return communicator.timing_source == TimingSource::kKernel ||
         communicator.timing_source == TimingSource::kKernelCpu;
}

void Add(const CommunicatorOnNode& communicator, UntimedJob& job) {
  bool lives = false, is_untimed = false;
  for (const RankOnNode& rank : communicator.ranks) {
    if (!rank.process->is_alive) continue;
    lives = true;
    if (HasGpuTimes(*rank.communicator)) continue;
    is_untimed = true;
    job.reasons.insert(rank.communicator->timing_reason);
  }
  if (lives) ++job.communicators;
  if (is_untimed) job.untimed.push_back(&communicator);
}

std::string NamesOf(const std::vector<const CommunicatorOnNode*>& communicators) {
  std::set<std::string> names;
  for (const CommunicatorOnNode* one : communicators)
    names.insert(CommunicatorText(one->key.id, one->ranks.front().communicator->name));
  return ListText(names.size(), [name = names.begin()](size_t) mutable { return *name++; });
}

Finding FindingOf(const UntimedJob& job) {
  const CommunicatorOnNode& any = *job.untimed.front();
  const bool is_all = job.untimed.size() == job.communicators;
  std::vector<std::string> names, meanings, cures;
  for (const TimingReason reason : job.reasons) {
    names.emplace_back(NameOf(reason));
    meanings.emplace_back(RowIn(kTimingReasons, reason).meaning);
    const std::string cure = UntimedCure(NameOf(reason));
    if (std::ranges::find(cures, cure) == cures.end()) cures.push_back(cure);
  }
  Finding finding =
      FindingAbout(FindingKind::kNotJudged, Severity::kInfo, any.key, any.ranks.front());
  if (job.untimed.size() > 1) {
    finding.communicator.reset();
    finding.communicator_name.clear();
  }
  finding.headline =
      fmt::format("Late ranks of {}{} cannot be seen: no GPU times ({}).",
                  is_all ? "" : NamesOf(job.untimed) + " of ", finding.job, fmt::join(names, ", "));
  finding.cost = "not known: waiting cannot be measured without GPU times";
  finding.evidence = {
      {"communicators without GPU times",
       fmt::format("{} of {}: {}", job.untimed.size(), job.communicators, NamesOf(job.untimed))},
      {"reason", fmt::format("{}", fmt::join(meanings, "; "))},
      {"judged nevertheless", "hangs, and processes that are dead or stopped"}};
  finding.next = fmt::format("{}", fmt::join(cures, " "));
  finding.runbook = "NCCLJobNotJudged";
  return finding;
}

}  // namespace

std::string UntimedCure(std::string_view timing_reason) {
  static const std::map<std::string_view, const char*> kCures{
      {NameOf(TimingReason::kConfigured), "Remove NCCL_EXPORTER_KERNEL_TIMING=off from the job."},
      {NameOf(TimingReason::kApiTooOld), "Upgrade NCCL to 2.28 or later."},
      {NameOf(TimingReason::kReleaseUnsound), "Upgrade NCCL."},
      {NameOf(TimingReason::kReleaseUnknown), "Link NCCL dynamically."},
      {NameOf(TimingReason::kSharedMemoryLow), "Enlarge /dev/shm of the job."},
      {NameOf(TimingReason::kOverflow), "Raise NCCL_EXPORTER_COMMUNICATORS in the job."},
      {NameOf(TimingReason::kAllgathervEnabled), "Set NCCL_ALLGATHERV_ENABLE=0 in the job."},
      {NameOf(TimingReason::kCpusLow), "Give each rank at least two CPUs."},
      {"registration_enabled", "Set NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0 in the job."},
      {"resources_shared",
       "Unset NCCL_COMM_SPLIT_SHARE_RESOURCES and NCCL_COMM_SHRINK_SHARE_RESOURCES in the job."}};
  const auto cure = kCures.find(timing_reason);
  return cure == kCures.end() ? "See docs/kernel-timing.md for this reason." : cure->second;
}

std::vector<Finding> NotJudged(const std::vector<CommunicatorOnNode>& communicators) {
  std::map<JobKey, UntimedJob> jobs;
  for (const CommunicatorOnNode& communicator : communicators) {
    // 0: the number of ranks is not known.
    if (communicator.key.ranks != 1) Add(communicator, jobs[JobKeyOf(communicator.key)]);
  }
  std::vector<Finding> findings;
  for (const auto& [key, job] : jobs) {
    if (!job.untimed.empty()) findings.push_back(FindingOf(job));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
