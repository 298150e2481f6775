// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_troubles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "exporter/findings/words.h"
#include "proto/loss.h"

namespace nccl_exporter::exporter {
namespace {

// What to do about files that cannot be used.
std::string_view Advice(collector::SegmentError error) {
  switch (error) {
    case collector::SegmentError::kOpenFailed:
      return "Give the daemon the right to read the file, and enough file descriptors.";
    case collector::SegmentError::kNotARegularFile:
    case collector::SegmentError::kBadMagic:
      return "Remove the file: another program made it.";
    case collector::SegmentError::kUnknownMajor:
      return "Upgrade the older one of plugin and daemon.";
    case collector::SegmentError::kUnlinkFailed:
      return "Give the daemon the right to remove files there, or mount the directory writable.";
    case collector::SegmentError::kDirectoryUnreadable:
      return "Give the daemon the right to read the directory.";
    case collector::SegmentError::kTooManySegments:
      return "Ask the user to end processes or to remove files.";
    case collector::SegmentError::kBadGeometry:
    case collector::SegmentError::kTruncated:
    case collector::SegmentError::kReadFailed:
    case collector::SegmentError::kChangedWhileRead:
    case collector::SegmentError::kCount:
      break;
  }
  return "Remove the file once its process has ended: it is damaged.";
}

// Losses that are neither a choice of the plugin nor the end of a job. A communicator whose time
// stamps drift is untimed by design.
bool IsAlarming(Loss loss) {
  return TraitsOf(loss).kind == LossKind::kDropped && loss != Loss::kIncompleteAtFinalize &&
         loss != Loss::kCommunicatorDrifting;
}

// What to do about the most frequent cause.
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

using JobKey = std::tuple<uint64_t, std::string, std::string>;  // user, Slurm's job, name space

struct JobLosses {
  std::string job;
  uint64_t uid = 0;
  uint64_t operations = 0;
  uint64_t lost = 0;
  std::array<uint64_t, kLossCount> by_cause{};
  int64_t since_realtime_ns = 0;
};

Finding FindingOf(const JobLosses& losses) {
  std::vector<std::pair<uint64_t, Loss>> causes;
  for (size_t i = 0; i < losses.by_cause.size(); ++i) {
    if (losses.by_cause[i] != 0) causes.emplace_back(losses.by_cause[i], static_cast<Loss>(i));
  }
  std::ranges::stable_sort(causes, [](const auto& a, const auto& b) { return a.first > b.first; });
  Finding finding;
  finding.kind = FindingKind::kOperationsNotFollowed;
  finding.severity = Severity::kInfo;
  finding.uid = losses.uid;
  finding.job = losses.job;
  finding.since_realtime_ns = losses.since_realtime_ns;
  finding.headline =
      fmt::format("{} loses track of operations since {}: {}{} are counted, but not followed.",
                  Capital(losses.job), ClockText(losses.since_realtime_ns), losses.lost,
                  losses.operations == 0 ? "" : " of " + CountText(losses.operations, "operation"));
  finding.cost = "durations, late ranks and what is in flight are incomplete";
  for (const auto& [events, cause] : causes) {
    finding.evidence.emplace_back(TraitsOf(cause).reason,
                                  fmt::format("{}: {}", events, TraitsOf(cause).meaning));
  }
  finding.next = Advice(causes.front().second);
  finding.runbook = "NCCLExporterEventsDropped";
  return finding;
}

}  // namespace

std::vector<Finding> UnusableSegments(const collector::NodeSnapshot& node) {
  std::vector<Finding> findings;
  for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
    if (trouble.present == 0) continue;
    const auto& row = RowIn(collector::kSegmentErrors, trouble.error);
    const std::string detail = trouble.detail.empty() ? "" : " (" + Printable(trouble.detail) + ")";
    Finding finding;
    finding.kind = FindingKind::kSegmentsUnusable;
    finding.severity = Severity::kWarning;
    finding.uid = trouble.uid.value_or(trouble.file_uid);
    finding.since_realtime_ns = trouble.realtime_ns;
    finding.headline =
        fmt::format("{} of user {} cannot be used since {}: {}{}.", PrintablePath(trouble.file),
                    trouble.file_uid, ClockText(trouble.realtime_ns), row.meaning, detail);
    finding.cost = "processes of this user may not be monitored";
    finding.evidence = {
        {"reason", std::string(row.name)},
        {"files and directories with this fault now", fmt::format("{}", trouble.present)}};
    finding.next = Advice(trouble.error);
    finding.runbook = "NCCLExporterSegmentsUnusable";
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> UnfollowedOperations(const collector::NodeSnapshot& node,
                                          const NodeHistory& history, const JudgementTimes& times) {
  std::map<collector::FileKey, const collector::ProcessSnapshot*> processes;
  for (const collector::ProcessSnapshot& process : node.processes)
    processes[process.file] = &process;
  std::map<JobKey, JobLosses> jobs;
  double seconds = 0;
  const double wanted = Seconds(times.losses_window());
  for (size_t step = history.steps(); step-- > 0 && seconds < wanted;) {
    seconds += history.Seconds(step);
    for (const LossDelta& loss : history.Losses(step)) {
      const auto process = processes.find(loss.process);
      if (!IsAlarming(loss.cause) || process == processes.end()) continue;
      const collector::ProcessSnapshot& of = *process->second;
      JobLosses& job = jobs[{of.uid, of.Identity("SLURM_JOB_ID"), of.Identity("POD_NAMESPACE")}];
      job.job = JobText(of);
      job.uid = of.uid;
      job.lost += loss.events;
      job.by_cause[static_cast<size_t>(loss.cause)] += loss.events;
      job.since_realtime_ns = history.EndRealtimeNs(step);
    }
  }
  if (jobs.empty() || seconds < wanted) return {};
  for (const auto& [rank, delta] : history.RecentRanks(wanted).ranks) {
    const auto job = jobs.find({rank.first.uid, rank.first.job, rank.first.name_space});
    if (job == jobs.end()) continue;
    for (const TrafficDelta& traffic : delta.traffic) job->second.operations += traffic.operations;
  }
  std::vector<Finding> findings;
  for (const auto& [key, job] : jobs) {
    if (static_cast<double>(job.lost) > kLossShare * static_cast<double>(job.operations))
      findings.push_back(FindingOf(job));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
