// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/losses/lost_operations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/findings/words.h"
#include "proto/loss.h"

namespace nccl_exporter::exporter {
namespace {

std::string_view Advice(Loss loss) {
  switch (loss) {
    case Loss::kNoFreeCommunicatorSlot:
      return "Raise NCCL_EXPORTER_COMMUNICATORS for the job.";
    case Loss::kReservationFailed:
      return "Make room in the file system of the segments.";
    case Loss::kInFlightFull:
      return "Look for an operation that hangs; else the job calls far ahead, and nothing is "
             "wrong.";
    default:
      return "Counts stay exact; the runbook explains each cause.";
  }
}

}  // namespace

void LostOperations::Record(const collector::NodeSnapshot& node, const NodeHistory& history) {
  std::map<JobKey, JobLosses> jobs;
  std::map<collector::FileKey, JobLosses*> of_process;
  for (const collector::ProcessSnapshot& process : node.processes) {
    JobLosses& job = jobs[JobKeyOf(process)];
    if (job.job.empty()) job.job = JobText(process);
    of_process[process.file] = &job;
    for (const Loss cause : kLossesOfCommunicators) {
      const uint64_t events = process.is_alive ? process.losses[static_cast<size_t>(cause)] : 0;
      job.communicators += events;
      job.by_cause[static_cast<size_t>(cause)] += events;
    }
  }
  const double wanted = Seconds(times_.losses_window);
  double seconds = 0;
  for (size_t step = history.steps(); step-- > 0 && seconds < wanted;) {
    seconds += history.Seconds(step);
    for (const LossDelta& loss : history.Losses(step)) {
      const auto job = of_process.find(loss.process);
      if (!IsUnfollowed(loss.cause) ||
          std::ranges::count(kLossesOfCommunicators, loss.cause) != 0 || job == of_process.end())
        continue;
      job->second->by_cause[static_cast<size_t>(loss.cause)] += loss.events;
      job->second->lost += loss.events;
      job->second->since_realtime_ns = history.EndRealtimeNs(step);  // steps go back in time
    }
  }
  std::erase_if(
      jobs, [](const auto& entry) { return entry.second.lost + entry.second.communicators == 0; });
  std::map<JobKey, uint64_t> operations;
  if (!jobs.empty()) operations = history.RecentOperations(wanted);
  for (auto& [key, job] : jobs) {
    job.operations = operations[key];
    const bool are_many =
        seconds >= wanted &&
        static_cast<double>(job.lost) > times_.lost_share * static_cast<double>(job.operations);
    job.is_found = are_many || job.communicators != 0;
    if (job.since_realtime_ns == 0) job.since_realtime_ns = node.taken_realtime_ns;
    // The begin of a run stays when the window has left it.
    const auto before = jobs_.find(key);
    if (before != jobs_.end() && before->second.is_found)
      job.since_realtime_ns = before->second.since_realtime_ns;
  }
  jobs_ = std::move(jobs);
}

std::vector<Finding> LostOperations::Findings() const {
  std::vector<Finding> findings;
  for (const auto& [key, job] : jobs_) {
    if (job.is_found) findings.push_back(FindingOf(key, job));
  }
  return findings;
}

Finding LostOperations::FindingOf(const JobKey& key, const JobLosses& losses) {
  std::vector<std::pair<uint64_t, Loss>> causes;
  for (size_t i = 0; i < losses.by_cause.size(); ++i) {
    if (losses.by_cause[i] != 0) causes.emplace_back(losses.by_cause[i], static_cast<Loss>(i));
  }
  std::ranges::stable_sort(causes, [](const auto& a, const auto& b) { return a.first > b.first; });
  Finding finding;
  finding.kind = FindingKind::kOperationsNotFollowed;
  finding.severity = Severity::kInfo;
  finding.uid = key.uid;
  finding.job = losses.job;
  finding.job_name = key.job;
  finding.name_space = key.name_space;
  finding.since_realtime_ns = losses.since_realtime_ns;
  std::vector<std::string> what;
  if (losses.lost != 0)
    what.push_back(fmt::format(
        "{}{}", losses.lost,
        losses.operations == 0 ? "" : " of " + CountText(losses.operations, "operation")));
  if (losses.communicators != 0)
    what.push_back("those of " + CountText(losses.communicators, "communicator") +
                   " without a slot");
  finding.headline = fmt::format(
      "{} loses track of operations since {}: {} are counted, but not followed.",
      Capital(losses.job), ClockText(losses.since_realtime_ns), fmt::join(what, " and "));
  finding.cost = "durations, late ranks and what is in flight are incomplete";
  for (const auto& [events, cause] : causes) {
    finding.evidence.emplace_back(TraitsOf(cause).reason,
                                  fmt::format("{}: {}", events, TraitsOf(cause).meaning));
  }
  finding.next = Advice(causes.front().second);
  finding.runbook = "NCCLExporterEventsDropped";
  return finding;
}

}  // namespace nccl_exporter::exporter
