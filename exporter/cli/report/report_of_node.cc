// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_of_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "exporter/findings/node_judge.h"
#include "exporter/findings/words.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/text/version.h"
#include "proto/collective.h"
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

using Ranks = std::vector<RankOnNode>;

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

collector::SizeClassSnapshot CountsOf(const CommunicatorSnapshot& communicator, size_t function) {
  collector::SizeClassSnapshot sum;
  for (const collector::SizeClassSnapshot& size : communicator.functions[function].sizes)
    sum += size;
  return sum;
}

// In collectives that were timed.
double CollectiveSeconds(const CommunicatorSnapshot& communicator) {
  double seconds = 0;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (!kFunctions[i].is_point_to_point)
      seconds += Seconds(static_cast<int64_t>(CountsOf(communicator, i).busy_ns));
  }
  return seconds;
}

// Whether members differ in sends and receives, or are a pair that makes some: they join stages of
// a pipeline, which are unequal by design.
bool JoinsStages(const Ranks& ranks) {
  constexpr double kAlike = 0.9;
  std::vector<double> operations;
  for (const RankOnNode& rank : ranks) {
    double& sum = operations.emplace_back();
    for (const CommunicatorSnapshot& communicator : rank.process->communicators) {
      for (const FunctionTraits& function : kFunctions) {
        if (function.is_point_to_point)
          sum += static_cast<double>(
              CountsOf(communicator, static_cast<size_t>(function.id)).operations);
      }
    }
  }
  const auto [least, most] = std::ranges::minmax(operations);
  return most > 0 && (ranks.size() == 2 || least < kAlike * most);
}

int64_t EndOf(const ProcessSnapshot& process, int64_t now_ns) {
  if (process.is_alive) return now_ns;
  int64_t end_ns = process.start_realtime_ns;
  for (const CommunicatorSnapshot& communicator : process.communicators)
    end_ns = std::max(end_ns, communicator.last_progress_realtime_ns);
  return end_ns;
}

double LifeSeconds(const ProcessSnapshot& process, int64_t now_ns) {
  return std::max(0.0, Seconds(EndOf(process, now_ns) - process.start_realtime_ns));
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

SampleLabels LabelsOf(const RankOnNode& rank) {
  return LabelsOf(FoundRankOf(rank, Standing::kLate));
}

class OfNode {
 public:
  OfNode(const collector::NodeSnapshot& node, const Job& job, const Thresholds& thresholds)
      : now_ns_(node.taken_realtime_ns), thresholds_(thresholds) {
    for (const ProcessSnapshot& process : node.processes) {
      if (JobOf(process).labels != job.labels) continue;
      processes_.push_back(&process);
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
    AddFindings(judgement, report);
    AddLastState(report);
    AddFacts(report);
    AddLosses(report);
  }

 private:
  void AddTime(Report& report) const;
  void AddTraffic(Report& report) const;
  void AddWaiting(Report& report) const;
  void AddFindings(const Judgement& judgement, Report& report) const;
  void AddLastState(Report& report) const;
  void AddFacts(Report& report) const;
  void AddLosses(Report& report) const;

  const int64_t now_ns_;
  const Thresholds& thresholds_;
  std::vector<const ProcessSnapshot*> processes_;
  std::map<collector::CommunicatorKey, Ranks> communicators_;
};

void OfNode::AddTime(Report& report) const {
  for (const ProcessSnapshot* const process : processes_) {
    const double from = Seconds(process->start_realtime_ns);
    report.from = report.from == 0 ? from : std::min(report.from, from);
    report.to = std::max(report.to, Seconds(EndOf(*process, now_ns_)));
    std::set<std::pair<int, std::string>> gpus;
    for (const CommunicatorSnapshot& communicator : process->communicators)
      gpus.emplace(communicator.gpu_index, communicator.gpu_uuid);
    report.gpu_seconds +=
        LifeSeconds(*process, now_ns_) * static_cast<double>(std::max<size_t>(gpus.size(), 1));
  }
}

void OfNode::AddTraffic(Report& report) const {
  for (const auto& [key, ranks] : communicators_) {
    for (size_t i = 0; i < kFunctionCount; ++i) {
      ReportTraffic row{.comm = fmt::format("{:016x}", key.id),
                        .comm_name = ranks.front().communicator->name,
                        .collective = std::string(kFunctions[i].name)};
      std::vector<double> seconds;
      for (const RankOnNode& rank : ranks) {
        const collector::SizeClassSnapshot counts = CountsOf(*rank.communicator, i);
        if (!counts.IsUsed()) continue;
        row.operations += static_cast<double>(counts.operations);
        row.timed_operations += static_cast<double>(counts.timed_operations);
        row.bytes += static_cast<double>(counts.bytes);
        seconds.push_back(static_cast<double>(counts.busy_ns) / 1e9);
        row.busy_seconds += seconds.back();
      }
      if (seconds.empty()) continue;
      row.ranks = seconds.size();
      if (!kFunctions[i].is_point_to_point) row.least_seconds = *std::ranges::min_element(seconds);
      report.traffic.push_back(std::move(row));
    }
  }
  std::ranges::stable_sort(report.traffic, std::ranges::greater(), &ReportTraffic::busy_seconds);
}

// As the rules have it: a rank waits by what it spends in collectives beyond the rank with the
// least time, and for that rank. Waits that the median rank does not share are jitter.
// Communicators across nodes wait at the same time, so only the longest wait of a process counts.
void OfNode::AddWaiting(Report& report) const {
  std::map<const ProcessSnapshot*, std::pair<double, double>> waits;  // in nodes, across nodes
  std::map<const ProcessSnapshot*, ReportEvent> waited_for;
  for (const auto& [key, ranks] : communicators_) {
    if (ranks.size() < 2 || JoinsStages(ranks)) continue;
    std::vector<std::pair<double, const RankOnNode*>> seconds;
    for (const RankOnNode& rank : ranks)
      seconds.emplace_back(CollectiveSeconds(*rank.communicator), &rank);
    std::ranges::sort(seconds);
    const double median =
        (seconds[(seconds.size() - 1) / 2].first + seconds[seconds.size() / 2].first) / 2;
    report.knows_waiting |= median > 0;
    const auto& [least, late] = seconds.front();
    const double life =
        Seconds(EndOf(*late->process, now_ns_) - late->communicator->created_realtime_ns);
    if (least <= 0 || median - least <= thresholds_.least_wait * life) continue;
    ReportEvent& event =
        waited_for.try_emplace(late->process, ReportEvent{.name = "", .labels = LabelsOf(*late)})
            .first->second;
    for (const auto& [own, rank] : seconds) {
      auto& [within, across] = waits[rank->process];
      const double before = within + across;
      if (rank->communicator->nodes > 1)
        across = std::max(across, own - least);
      else
        within += own - least;
      event.gpu_seconds += within + across - before;
    }
  }
  for (const auto& [process, wait] : waits)
    report.waiting_gpu_seconds +=
        std::min(wait.first + wait.second, LifeSeconds(*process, now_ns_));
  for (auto& [process, event] : waited_for) report.waited_for.push_back(std::move(event));
  std::ranges::stable_sort(report.waited_for, std::ranges::greater(), &ReportEvent::gpu_seconds);
}

void OfNode::AddFindings(const Judgement& judgement, Report& report) const {
  double hang = 0;
  for (const Finding& finding : judgement.findings) {
    const auto& of = finding.communicator;
    // The daemon's answer has names as they are shown.
    const auto is_its = [&](const std::string& name, const char* label) {
      return PrintablePath(name) == PrintablePath(report.job.Label(label));
    };
    if (!is_its(std::to_string(finding.uid), "uid") ||
        !is_its(of ? of->job : finding.job_name, "nccl_job") ||
        !is_its(of ? of->name_space : finding.name_space, "namespace"))
      continue;
    ReportEvent event{.name = std::string(finding.kind == FindingKind::kCount
                                              ? "other"
                                              : RowIn(kFindingKinds, finding.kind).name),
                      .severity = std::string(RowIn(kSeverities, finding.severity).name),
                      .text = finding.headline,
                      .labels = {},
                      .times = {{Seconds(finding.since_realtime_ns), Seconds(now_ns_)}}};
    for (const auto& [name, value] : finding.evidence)
      event.text += ' ' + name + ": " + value + '.';
    if (IsHang(finding.kind))
      hang = std::max(hang, static_cast<double>(finding.waiting.size() + finding.more_waiting) *
                                Seconds(now_ns_ - finding.since_realtime_ns));
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
// were in flight then were a hang, or just under way: if a hang, who caused it.
void OfNode::AddLastState(Report& report) const {
  if (std::ranges::any_of(processes_, &ProcessSnapshot::is_alive)) return;
  collector::NodeSnapshot node;
  node.taken_realtime_ns = now_ns_;
  for (const ProcessSnapshot* const process : processes_) {
    node.processes.push_back(*process);
    node.processes.back().is_alive = true;
  }
  Judgement then = NodeJudge(thresholds_).Judge(node);
  std::erase_if(then.findings, [](const Finding& finding) { return !IsHang(finding.kind); });
  for (Finding& finding : then.findings) {
    finding.severity = Severity::kInfo;
    finding.headline = "If it hung until it was killed: " + finding.headline;
  }
  const double waiting = report.waiting_gpu_seconds;
  AddFindings(then, report);
  report.waiting_gpu_seconds = waiting;
}

void OfNode::AddFacts(Report& report) const {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> facts;
  std::set<std::string> nodes;
  for (const ProcessSnapshot* const process : processes_) {
    nodes.insert(process->NodeName());
    const std::string rank = process->numbers.global_rank
                                 ? "global rank " + process->numbers.GlobalText()
                                 : fmt::format("pid {}", process->pid);
    const auto add = [&](std::string name, const std::string& value) {
      facts[std::move(name)][value].push_back(rank);
    };
    add("plugin_version", process->plugin_version);
    std::set<int> versions;
    for (const CommunicatorSnapshot& communicator : process->communicators)
      versions.insert(communicator.nccl_version);
    for (const int version : versions) {
      if (version > 0) add("nccl_version", NcclVersionText(version));
    }
    for (const auto& [name, value] : process->identity) {
      const bool is_label = name.starts_with(kUserLabelKey);
      if (std::ranges::find(kOfRank, name) == kOfRank.end())
        add(is_label ? name.substr(kUserLabelKey.size()) : name, value);
    }
  }
  report.nodes = nodes.size();
  for (auto& [name, values] : facts) {
    const auto begin = static_cast<std::ptrdiff_t>(report.facts.size());
    for (auto& [value, ranks] : values) {
      const size_t processes = ranks.size();
      if (ranks.size() > kMostListed) ranks.resize(kMostListed);
      report.facts.push_back(
          {.name = name, .value = value, .processes = processes, .on = std::move(ranks)});
    }
    std::stable_sort(
        report.facts.begin() + begin, report.facts.end(),
        [](const ReportFact& a, const ReportFact& b) { return a.processes > b.processes; });
    report.facts[static_cast<size_t>(begin)].on.clear();
  }
}

void OfNode::AddLosses(Report& report) const {
  for (size_t i = 0; i < kLossCount; ++i) {
    const LossTraits& loss = kLosses[i];
    if (loss.kind == LossKind::kUnmatched) continue;
    ReportLoss sum{.cause = std::string(loss.reason)};
    for (const ProcessSnapshot* const process : processes_)
      sum.operations += static_cast<double>(process->losses[i]);
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
