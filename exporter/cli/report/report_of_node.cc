// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_of_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "exporter/findings/late/late_candidates.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/text/version.h"
#include "proto/collective.h"
#include "proto/identity_variables.h"
#include "proto/loss.h"
#include "proto/user_labels.h"

namespace nccl_exporter::exporter {
namespace {

using collector::CommunicatorSnapshot;
using collector::ProcessSnapshot;

// Variables that ranks and nodes have of their own, or that name the job.
constexpr std::array<std::string_view, 13> kOfRank{
    "RANK",       "LOCAL_RANK",   "SLURM_PROCID",     "SLURM_LOCALID", "POD_NAME",
    "NODE_NAME",  "POD_UID",      "GROUP_RANK",       "SLURM_STEP_ID", "CONTAINER_NAME",
    "WORLD_SIZE", "SLURM_JOB_ID", "NCCL_EXPORTER_JOB"};

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

collector::SizeClassSnapshot CountsOf(const CommunicatorSnapshot& communicator, size_t function) {
  collector::SizeClassSnapshot sum;
  for (const collector::SizeClassSnapshot& size : communicator.functions[function].sizes)
    sum += size;
  return sum;
}

int64_t EndOf(const ProcessSnapshot& process, int64_t now_ns) {
  if (process.is_alive) return now_ns;
  int64_t end_ns = process.start_realtime_ns;
  for (const CommunicatorSnapshot& communicator : process.communicators)
    end_ns = std::max(end_ns, communicator.last_progress_realtime_ns);
  return end_ns;
}

// A process makes its calls ahead of its GPU, and those of one that has ended earlier than the
// others, or was stopped, are in flight like theirs. So an operation counts as entered once it has
// begun on the GPU. A GPU may be in an operation that is not seen: then its calls count.
void LeaveOutNotBegun(ProcessSnapshot& process) {
  for (const CommunicatorSnapshot& communicator : process.communicators) {
    const bool is_seen =
        communicator.completion_is_known && HasDurations(communicator.timing_source);
    if (!communicator.is_closed && communicator.last_progress_realtime_ns != 0 && !is_seen) return;
  }
  for (CommunicatorSnapshot& communicator : process.communicators) {
    std::erase_if(communicator.in_flight, [&](const collector::InFlightOperation& operation) {
      if (operation.parts_announced > 0) return false;
      if (!TraitsOf(operation.function).is_point_to_point &&
          communicator.started_sequence > communicator.completed_sequence)
        --communicator.started_sequence;
      return true;
    });
  }
}

SampleLabels LabelsOf(const FoundRank& rank) {
  SampleLabels labels{{"global_rank", rank.global_rank},
                      {"rank", rank.global_rank.empty() ? std::to_string(rank.rank) : ""},
                      {"gpu", rank.gpu_index < 0 ? "" : std::to_string(rank.gpu_index)},
                      {"gpu_uuid", rank.gpu_uuid},
                      {"hostname", rank.host_name},
                      {"pod", rank.pod},
                      {"pid", rank.pid == 0 ? "" : std::to_string(rank.pid)}};
  std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
  return labels;
}

// Sums have no parts of the time.
void AddMeasures(double steps, Report& report) {
  const ReportTraffic* const rarest = RarestOf(report);
  if (steps <= 0 && rarest == nullptr) return;
  report.step = steps > 0 ? "step" : NameOf(*rarest);
  if (steps <= 0) steps = rarest->operations / static_cast<double>(rarest->ranks);
  report.measures.push_back({report.step, {(report.to - report.from) / steps}});
  for (const ReportTraffic& row : report.traffic) {
    if (row.timed_ranks == 0) continue;
    const auto timed = static_cast<double>(row.timed_ranks);
    const double transfer = row.least_seconds * static_cast<double>(row.ranks) / timed;
    report.measures.push_back({"transfer in " + NameOf(row), {transfer / steps}});
    report.measures.push_back(
        {"waiting in " + NameOf(row), {(row.busy_seconds / timed - transfer) / steps}});
  }
}

class OfNode {
 public:
  OfNode(const collector::NodeSnapshot& node, const Job& job, const Thresholds& thresholds)
      : thresholds_(thresholds) {
    node_.taken_realtime_ns = node.taken_realtime_ns;
    for (const ProcessSnapshot& process : node.processes) {
      if (JobOf(process).labels == job.labels) node_.processes.push_back(process);
    }
    for (const ProcessSnapshot& process : node_.processes) {
      for (const CommunicatorSnapshot& communicator : process.communicators) {
        if (communicator.has_identity)
          communicators_[CommunicatorKeyOf(process, communicator)].push_back(
              {&process, &communicator});
      }
    }
  }

  void Fill(const Judgement& judgement, Report& report) const {
    AddTime(report);
    AddTraffic(report);
    AddWaiting(report);
    AddFindings(judgement, Seconds(node_.taken_realtime_ns), report);
    AddLastState(report);
    AddFacts(report);
    AddLosses(report);
  }

 private:
  void AddTime(Report& report) const;
  void AddTraffic(Report& report) const;
  void AddWaiting(Report& report) const;
  void AddFindings(const Judgement& judgement, double until, Report& report) const;
  void AddLastState(Report& report) const;
  void AddFacts(Report& report) const;
  void AddLosses(Report& report) const;

  const Thresholds& thresholds_;
  collector::NodeSnapshot node_;  // with the processes of the job
  std::map<collector::CommunicatorKey, std::vector<RankOnNode>> communicators_;
};

void OfNode::AddTime(Report& report) const {
  const int64_t now_ns = node_.taken_realtime_ns;
  for (const ProcessSnapshot& process : node_.processes) {
    const double from = Seconds(process.start_realtime_ns);
    const double to = std::max(from, Seconds(EndOf(process, now_ns)));
    report.from = report.from == 0 ? from : std::min(report.from, from);
    report.to = std::max(report.to, to);
    std::set<GpuOfProcess> gpus;
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.is_overflow) gpus.insert(RankOnNode{&process, &communicator}.gpu());
    }
    report.gpu_seconds += (to - from) * static_cast<double>(std::max<size_t>(gpus.size(), 1));
  }
}

void OfNode::AddTraffic(Report& report) const {
  std::map<std::pair<std::string, size_t>, ReportTraffic> rows;
  for (const auto& [key, ranks] : communicators_) {
    const std::string& name = ranks.front().communicator->name;
    for (size_t i = 0; i < kFunctionCount; ++i) {
      const std::string of = name.empty() ? fmt::format("{:016x}", key.id) : name;
      std::vector<double> seconds;  // of the ranks that have times
      for (const RankOnNode& rank : ranks) {
        const collector::SizeClassSnapshot counts = CountsOf(*rank.communicator, i);
        if (!counts.IsUsed()) continue;
        ReportTraffic& row = rows[{of, i}];
        row.operations += static_cast<double>(counts.operations);
        row.timed_operations += static_cast<double>(counts.timed_operations);
        row.bytes += static_cast<double>(counts.bytes);
        const double busy = static_cast<double>(counts.busy_ns) / 1e9;
        row.busy_seconds += busy;
        if (kFunctions[i].is_point_to_point) continue;
        ++row.ranks;
        if (busy > 0) seconds.push_back(busy);
      }
      if (seconds.empty()) continue;
      ReportTraffic& row = rows[{of, i}];
      row.timed_ranks += seconds.size();
      row.least_seconds += std::ranges::min(seconds) * static_cast<double>(seconds.size());
    }
  }
  for (auto& [kind, row] : rows) {
    row.comm_name = kind.first;
    row.collective = kFunctions[kind.second].name;
    row.least_seconds /= static_cast<double>(std::max<uint64_t>(row.ranks, 1));
    report.traffic.push_back(std::move(row));
  }
  std::ranges::stable_sort(report.traffic, std::ranges::greater(), &ReportTraffic::busy_seconds);
}

void OfNode::AddWaiting(Report& report) const {
  const double seconds = report.to - report.from;
  if (!(seconds > 0)) return;
  const LostInLife lost = LostInLifeOf(node_, static_cast<int64_t>(report.from * 1e9),
                                       static_cast<int64_t>(report.to * 1e9), thresholds_);
  report.knows_waiting = lost.gpus.gpus > 0;
  report.waiting_gpu_seconds = lost.gpus.lost * seconds;
  std::map<const ProcessSnapshot*, ReportEvent> waited_for;
  for (const auto& [key, gpus] : lost.gpus.by_rank) {
    for (const RankOnNode& rank : communicators_.at(key.first)) {
      if (rank.communicator->rank != key.second) continue;
      ReportEvent& event = waited_for[rank.process];
      event.labels = LabelsOf(FoundRankOf(rank, Standing::kLate));
      event.gpu_seconds += gpus * seconds;
    }
  }
  for (auto& [process, event] : waited_for) report.waited_for.push_back(std::move(event));
  std::ranges::stable_sort(report.waited_for, std::ranges::greater(), &ReportEvent::gpu_seconds);
  AddMeasures(lost.steps, report);
}

void OfNode::AddFindings(const Judgement& judgement, double until, Report& report) const {
  double hang = 0;
  for (const Finding& finding : judgement.findings) {
    // The daemon's answer has names as they are shown.
    const auto is_its = [&](const std::string& name, const char* label) {
      return PrintablePath(name) == PrintablePath(report.job.Label(label));
    };
    const JobKey of = JobKeyOf(finding);
    if (!is_its(std::to_string(finding.uid), "uid") || !is_its(of.job, "nccl_job") ||
        !is_its(of.name_space, "namespace"))
      continue;
    const double since = Seconds(finding.since_realtime_ns);
    ReportEvent event{.name = std::string(finding.kind == FindingKind::kCount
                                              ? "other"
                                              : RowIn(kFindingKinds, finding.kind).name),
                      .severity = std::string(RowIn(kSeverities, finding.severity).name),
                      .text = finding.headline,
                      .labels = {},
                      .times = {{since, std::max(since, until)}}};
    for (const auto& [name, value] : finding.evidence)
      event.text += ' ' + name + ": " + value + '.';
    const auto lost =
        std::ranges::find(finding.numbers, "lost_gpus", &std::pair<std::string, double>::first);
    if (IsHang(finding.kind) && lost != finding.numbers.end())
      hang = std::max(hang, lost->second * (until - since));
    for (const FoundRank& culprit : finding.culprits) {
      event.labels = LabelsOf(culprit);
      report.events.push_back(event);
    }
    if (finding.culprits.empty()) report.events.push_back(std::move(event));
  }
  std::ranges::stable_sort(report.events, {}, &ReportEvent::begin);
  // Operations that do not end have no times, so a hang is in no sum.
  report.waiting_gpu_seconds = std::min(report.waiting_gpu_seconds + hang, report.gpu_seconds);
}

// A segment does not say when its process was killed. So it is not known whether operations that
// were in flight then were a hang, or just under way: if a hang, who caused it. Where parts of the
// job went on, those that stood still meanwhile did hang, and the others did not.
void OfNode::AddLastState(Report& report) const {
  if (std::ranges::any_of(node_.processes, &ProcessSnapshot::is_alive)) return;
  collector::NodeSnapshot node = node_;
  node.taken_realtime_ns = 0;
  for (ProcessSnapshot& process : node.processes) {
    node.taken_realtime_ns = std::max(node.taken_realtime_ns, EndOf(process, 0));
    process.is_alive = true;
    LeaveOutNotBegun(process);
  }
  const auto hangs = [&] {
    std::vector<Finding> findings = NodeJudge(thresholds_).Judge(node).findings;
    std::erase_if(findings, [](const Finding& finding) { return !IsHang(finding.kind); });
    return findings;
  };
  Judgement then{.findings = hangs()};
  node.taken_realtime_ns = node_.taken_realtime_ns;
  if (then.findings.empty()) then.findings = hangs();
  for (Finding& finding : then.findings) {
    finding.severity = Severity::kInfo;
    finding.headline = "If it hung until it was killed: " + finding.headline;
  }
  const double waiting = report.waiting_gpu_seconds;
  AddFindings(then, report.to, report);
  report.waiting_gpu_seconds = waiting;
}

void OfNode::AddFacts(Report& report) const {
  FactTable facts;
  std::set<std::string> nodes;
  std::map<std::string, ProcessVariables> variables;  // of each rank's last process
  for (const ProcessSnapshot& process : node_.processes) {
    nodes.insert(process.NodeName());
    const std::string rank =
        ProcessText(process.numbers.GlobalText(), std::to_string(process.pid),
                    process.Identity("POD_NAME"), process.Identity("CONTAINER_NAME"));
    facts["plugin_version"][process.plugin_version].push_back(rank);
    std::set<int> versions;
    for (const CommunicatorSnapshot& communicator : process.communicators)
      versions.insert(communicator.nccl_version);
    for (const int version : versions) {
      if (version > 0) facts["nccl_version"][NcclVersionText(version)].push_back(rank);
    }
    variables[rank].clear();
    for (const auto& [name, value] : process.identity) {
      if (IsNcclVariable(name)) {
        variables[rank][name] = value;
        continue;
      }
      const bool is_label = name.starts_with(kUserLabelKey);
      if (std::ranges::find(kOfRank, name) == kOfRank.end())
        facts[is_label ? name.substr(kUserLabelKey.size()) : name][value].push_back(rank);
    }
  }
  AddVariables(variables, facts);
  report.nodes = nodes.size();
  report.facts = FactsOf(std::move(facts));
}

void OfNode::AddLosses(Report& report) const {
  for (size_t i = 0; i < kLossCount; ++i) {
    const LossTraits& loss = kLosses[i];
    if (loss.kind == LossKind::kUnmatched) continue;
    ReportLoss sum{.cause = std::string(loss.reason)};
    for (const ProcessSnapshot& process : node_.processes)
      sum.operations += static_cast<double>(process.losses[i]);
    if (sum.operations > 0) report.losses.push_back(std::move(sum));
  }
  std::ranges::stable_sort(report.losses, std::ranges::greater(), &ReportLoss::operations);
}

}  // namespace

Report ReportOfNode(const collector::NodeSnapshot& node, const Judgement& judgement, const Job& job,
                    const Thresholds& thresholds, const std::string& node_name) {
  Report report{.source = "segments of " + node_name, .job = job};
  OfNode(node, job, thresholds).Fill(judgement, report);
  return report;
}

}  // namespace nccl_exporter::exporter
