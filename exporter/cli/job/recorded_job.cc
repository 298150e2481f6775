// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/recorded_job.h"

#include <utility>

namespace nccl_exporter::exporter {
namespace {

constexpr int kRanksPerNode = 4, kFirstPid = 1000;

RecordedJob::Labels Joined(RecordedJob::Labels labels, RecordedJob::Labels more) {
  labels.merge(std::move(more));
  return labels;
}

std::string NodeOf(int global_rank) {
  return "node-" + std::to_string(global_rank / kRanksPerNode);
}

}  // namespace

void RecordedJob::Add(const std::string& query, Labels labels, double value) {
  answers_[query].push_back({.labels = std::move(labels), .time = kNow, .value = value});
}

void RecordedJob::AddJob(Labels labels, double processes) {
  Add("(nccl_rank_info{}))", std::move(labels), processes);
}

void RecordedJob::AddCommunicator(const std::string& id, const std::string& name,
                                  const std::vector<int>& ranks, std::optional<double> changes) {
  communicators_[id] = {.name = name, .ranks = ranks};
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    Add("(nccl_rank_info{c", RankOf(id, static_cast<int>(rank)));
  Add("max by (comm) (nccl_communicator_ranks{", {{"comm", id}}, static_cast<double>(ranks.size()));
  if (!changes) return;
  Add("comm:nccl_progress:changes{", {{"comm", id}}, *changes);
  SetRulesAge(5);
  Forget("count(comm:nccl_progress:changes)");
  Add("count(comm:nccl_progress:changes)", {});
}

void RecordedJob::SetRulesAge(double seconds) {
  const std::string query = "min(time() - timestamp(comm:nccl_progress:changes{";
  Forget(query);
  Add(query, {}, seconds);
}

void RecordedJob::Quiet(const std::string& id, const std::vector<int>& ranks, double started,
                        std::optional<double> in_flight, const std::string& function,
                        double since) {
  for (const int rank : ranks) {
    Labels labels{{"comm", id}, {"rank", std::to_string(rank)}};
    Add("(nccl_stalled_progress{", labels, 2 * started - in_flight.value_or(0));
    Add("(nccl_stalled_started_sequence{", labels, started);
    if (in_flight) Add("(nccl_stalled_operations_in_flight{", labels, *in_flight);
    if (function.empty()) continue;
    labels["function"] = function;
    Add("(nccl_stalled_oldest_in_flight_start_timestamp_seconds{", labels, since);
  }
}

void RecordedJob::Wait(const std::string& id, const std::vector<int>& ranks) {
  for (const int rank : ranks) Add("comm_rank:nccl_hang:waiting{", RankOf(id, rank));
}

void RecordedJob::IsCulprit(const std::string& id, int rank, double behind) {
  Add("comm_rank:nccl_hang:culprit{", RankOf(id, rank), behind);
}

void RecordedJob::IsLate(const std::string& id, int rank, double share) {
  Add("comm_rank:nccl_straggler:proved{", RankOf(id, rank), share);
}

void RecordedJob::Fire(const std::string& alert, const std::string& severity, Labels place,
                       double since) {
  place["alertname"] = alert;
  place["severity"] = severity;
  Add("ALERTS_FOR_STATE{alertname=~\"NCCL.+\"", Joined({{"__name__", "ALERTS_FOR_STATE"}}, place),
      since);
  Add("ALERTS{alertstate=\"firing\",alertname=~\"NCCL.+\"",
      Joined({{"__name__", "ALERTS"}, {"alertstate", "firing"}}, std::move(place)));
}

RecordedJob::Labels RecordedJob::ProcessOf(int global_rank) {
  return {{"instance", NodeOf(global_rank) + ":9828"},
          {"pid", std::to_string(kFirstPid + global_rank)},
          {"global_rank", std::to_string(global_rank)}};
}

RecordedJob::Labels RecordedJob::RankOf(const std::string& id, int rank) const {
  const Communicator& communicator = communicators_.at(id);
  const int global_rank = communicator.ranks.at(static_cast<size_t>(rank));
  return Joined({{"comm", id},
                 {"comm_name", communicator.name},
                 {"rank", std::to_string(rank)},
                 {"gpu", std::to_string(global_rank % kRanksPerNode)},
                 {"hostname", NodeOf(global_rank)}},
                ProcessOf(global_rank));
}

AskPrometheus RecordedJob::Ask() const {
  return [this](const std::string& query) {
    queries_.push_back(query);
    QueryAnswer answer{.samples = {}, .fault = fault, .warnings = warnings};
    size_t longest = 0;
    for (const auto& [part, samples] : answers_) {
      if (part.size() < longest || query.find(part) == std::string::npos) continue;
      longest = part.size();
      answer.samples = samples;
    }
    return answer;
  };
}

std::string RecordedJob::Text(const JobRequest& request, const JobView& view) {
  failure_.clear();
  return AnswerAbout(request, Ask(), view, failure_);
}

}  // namespace nccl_exporter::exporter
