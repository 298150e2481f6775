// SPDX-License-Identifier: Apache-2.0
#include "exporter/job/job_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Alerts of this project (deploy/prometheus).
constexpr const char* kAlerts = "alertname=~\"NCCL.+\"";
constexpr const char* kNoRules =
    "the recording rules of nccl-exporter are not loaded (there is no comm_rank:nccl_rank:info): "
    "see deploy/prometheus";

// kProcessLabels.
using ProcessKey = std::array<std::string, 5>;
ProcessKey ProcessOf(const Sample& sample) {
  return {sample.Label("instance"), sample.Label("pod"), sample.Label("container"),
          sample.Label("pid"), sample.Label("global_rank")};
}
ProcessKey ProcessOf(const JobRank& rank) {
  return {rank.instance, rank.pod, rank.container, rank.pid, rank.global_rank};
}

// Ranks and communicators are texts of digits: by number, and others by text.
std::tuple<uint64_t, std::string> Order(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return {number, text};
}

class Collection {
 public:
  Collection(const AskPrometheus& ask, const Job& job) : ask_(ask) { state_.job = job; }

  JobState Collect() {
    AddRanks();
    if (Ask("count(comm_rank:nccl_rank:info)").empty()) throw std::runtime_error(kNoRules);
    AddCounts();
    AddProcesses();
    FindStill();
    AddLate();
    AddAlerts();
    Sort();
    return std::move(state_);
  }

 private:
  using Key = std::pair<std::string, std::string>;  // communicator and rank

  std::vector<Sample> Ask(const std::string& query) const {
    QueryAnswer answer = ask_(query);
    if (!answer.fault.empty()) throw std::runtime_error(answer.fault);
    return std::move(answer.samples);
  }
  std::string Of(const char* metric) const {
    return fmt::format("{}{{{}}}", metric, state_.job.PodMatchers());
  }

  void AddRanks() {
    std::map<std::string, JobCommunicator> communicators;
    std::set<std::string> nodes;
    std::set<ProcessKey> processes;
    for (const Sample& sample :
         Ask(fmt::format("group by (comm, comm_name, rank, gpu, hostname, {}) ({})", kProcessLabels,
                         Of("nccl_rank_info")))) {
      state_.time = sample.time;
      JobCommunicator& communicator = communicators[sample.Label("comm")];
      communicator.id = sample.Label("comm");
      communicator.name = sample.Label("comm_name");
      communicator.ranks.push_back({.rank = sample.Label("rank"),
                                    .global_rank = sample.Label("global_rank"),
                                    .gpu = sample.Label("gpu"),
                                    .node = sample.Label("hostname"),
                                    .instance = sample.Label("instance"),
                                    .pid = sample.Label("pid"),
                                    .pod = sample.Label("pod"),
                                    .container = sample.Label("container")});
      nodes.insert(sample.Label("instance"));
      processes.insert(ProcessOf(sample));
    }
    for (auto& [id, communicator] : communicators)
      state_.communicators.push_back(std::move(communicator));
    state_.nodes = nodes.size();
    state_.processes = processes.size();
    // Its ranks do not move from here on.
    for (JobCommunicator& communicator : state_.communicators) {
      for (JobRank& rank : communicator.ranks) ranks_[{communicator.id, rank.rank}] = &rank;
    }
  }

  // Calls `set` with each rank that `query`, grouped by rank, has a value of.
  template <typename Set>
  void ForEachRank(const std::string& query, Set set) {
    for (const Sample& sample : Ask(query)) {
      const auto rank = ranks_.find({sample.Label("comm"), sample.Label("rank")});
      if (rank != ranks_.end() && std::isfinite(sample.value)) set(*rank->second, sample);
    }
  }

  void AddCounts() {
    ForEachRank("max by (comm, rank) (" + Of("nccl_collective_started_sequence") + ")",
                [](JobRank& rank, const Sample& sample) { rank.started = sample.value; });
    // An alert series, which is scraped more often than the detail.
    ForEachRank("max by (comm, rank) (" + Of("nccl_stalled_started_sequence") + ")",
                [](JobRank& rank, const Sample& sample) {
                  rank.is_quiet = true;
                  rank.started = sample.value;
                });
    ForEachRank(
        "max by (comm, rank) (" + Of("nccl_operations_last_progress_timestamp_seconds") + ")",
        [](JobRank& rank, const Sample& sample) { rank.last_progress = sample.value; });
    ForEachRank("min by (comm, rank, function) (" +
                    Of("nccl_operations_oldest_in_flight_start_timestamp_seconds") + ")",
                [](JobRank& rank, const Sample& sample) {
                  if (!rank.function.empty() && rank.in_flight_since <= sample.value) return;
                  rank.function = sample.Label("function");
                  rank.in_flight_since = sample.value;
                });
    std::map<std::string, double> sizes;
    for (const Sample& sample : Ask("max by (comm) (" + Of("nccl_communicator_ranks") + ")"))
      sizes[sample.Label("comm")] = sample.value;
    for (JobCommunicator& communicator : state_.communicators) {
      const auto size = sizes.find(communicator.id);
      if (size != sizes.end()) communicator.size = size->second;
    }
  }

  void AddProcesses() {
    std::set<ProcessKey> dead, stopped;
    const auto add = [&](const char* metric, const char* value, auto& processes) {
      for (const Sample& sample :
           Ask(fmt::format("group by ({}) ({} == {})", kProcessLabels, Of(metric), value)))
        processes.insert(ProcessOf(sample));
    };
    add("nccl_process_alive", "0", dead);
    add("nccl_process_stopped", "1", stopped);
    state_.has_ended = true;
    for (JobCommunicator& communicator : state_.communicators) {
      for (JobRank& rank : communicator.ranks) {
        rank.is_dead = dead.contains(ProcessOf(rank));
        rank.is_stopped = !rank.is_dead && stopped.contains(ProcessOf(rank));
        state_.has_ended = state_.has_ended && rank.is_dead;
      }
    }
  }

  void FindStill() {
    for (JobCommunicator& communicator : state_.communicators) {
      for (const JobRank& rank : communicator.ranks) {
        communicator.started = std::max(communicator.started, rank.started);
        communicator.last_progress = std::max(communicator.last_progress, rank.last_progress);
      }
      communicator.is_still = communicator.last_progress > 0 &&
                              state_.time - communicator.last_progress > kStillSeconds &&
                              std::ranges::all_of(communicator.ranks, &JobRank::is_quiet);
      if (!communicator.is_still) continue;
      for (JobRank& rank : communicator.ranks) {
        rank.waits = !rank.is_dead && !rank.is_stopped && !rank.function.empty();
        rank.behind = communicator.started - rank.started;
      }
    }
    std::set<std::pair<ProcessKey, std::string>> waiting;
    const auto gpu = [](const JobRank& rank) { return std::pair(ProcessOf(rank), rank.gpu); };
    for (const auto& [key, rank] : ranks_) {
      if (rank->waits) waiting.insert(gpu(*rank));
    }
    for (auto& [key, rank] : ranks_)
      rank->waits_elsewhere = !rank->waits && waiting.contains(gpu(*rank));
  }

  void AddLate() {
    ForEachRank("max by (comm, rank) (" + Of("comm_rank:nccl_straggler:deficit") + ")",
                [](JobRank& rank, const Sample& sample) { rank.late_share = sample.value; });
    // Its series have no pods.
    const std::vector<Sample> waiting =
        Ask(fmt::format("sum(job:nccl_waiting_gpu_seconds:rate{{{}}})", state_.job.Matchers()));
    if (!waiting.empty() && state_.job.pod_prefix.empty())
      state_.waiting_gpus = waiting.front().value;
  }

  static JobAlert AlertOf(const Sample& sample) {
    return {.name = sample.Label("alertname"),
            .severity = sample.Label("severity"),
            .comm = sample.Label("comm"),
            .comm_name = sample.Label("comm_name"),
            .rank = sample.Label("rank"),
            .global_rank = sample.Label("global_rank"),
            .gpu = sample.Label("gpu"),
            .node = sample.Label("hostname")};
  }

  void AddAlerts() {
    const std::string matchers = std::string(kAlerts) + "," + state_.job.Matchers();
    std::map<std::map<std::string, std::string>, double> since;
    for (Sample& sample : Ask(fmt::format("ALERTS_FOR_STATE{{{}}}", matchers)))
      since[Unnamed(std::move(sample.labels))] = sample.value;
    for (const Sample& sample : Ask(fmt::format("ALERTS{{alertstate=\"firing\",{}}}", matchers))) {
      JobAlert alert = AlertOf(sample);
      if (!IsOfChosenPods(alert)) continue;
      const auto found = since.find(Unnamed(sample.labels));
      if (found != since.end()) alert.since = found->second;
      state_.alerts.push_back(std::move(alert));
    }
  }

  // The labels that ALERTS and ALERTS_FOR_STATE have in common.
  static std::map<std::string, std::string> Unnamed(std::map<std::string, std::string> labels) {
    labels.erase("__name__");
    labels.erase("alertstate");
    return labels;
  }

  // A namespace has the alerts of all its pods.
  bool IsOfChosenPods(const JobAlert& alert) const {
    if (state_.job.pod_prefix.empty() || alert.comm.empty()) return true;
    return std::ranges::count(state_.communicators, alert.comm, &JobCommunicator::id) != 0;
  }

  void Sort() {
    for (JobCommunicator& communicator : state_.communicators)
      std::ranges::sort(communicator.ranks, {},
                        [](const JobRank& rank) { return Order(rank.rank); });
    std::ranges::stable_sort(state_.communicators, std::ranges::greater(), [](const auto& c) {
      return std::max(c.size, static_cast<double>(c.ranks.size()));
    });
    std::ranges::stable_sort(state_.alerts, {}, [](const JobAlert& alert) {
      return std::tuple(alert.severity != "critical", alert.severity != "warning", alert.since);
    });
  }

  const AskPrometheus& ask_;
  JobState state_;
  std::map<Key, JobRank*> ranks_;
};

}  // namespace

std::optional<JobState> JobStateOf(const AskPrometheus& ask, const Job& job, std::string& fault) {
  try {
    return Collection(ask, job).Collect();
  } catch (const std::runtime_error& wrong) {
    fault = wrong.what();
    return std::nullopt;
  }
}

}  // namespace nccl_exporter::exporter
