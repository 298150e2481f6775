// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Alerts of this project (deploy/prometheus), and those of them that are about a target.
constexpr const char* kAlerts = "alertname=~\"NCCL.+\"";
constexpr const char* kTargetAlerts =
    "alertname=~\"NCCLExporter(Down|SeriesDropped|SegmentsUnusable)\"";
constexpr const char* kNoRules =
    "the recording rules of nccl-exporter are not loaded (there is no comm:nccl_progress:changes), "
    "so hangs and late ranks are not known: see deploy/prometheus";

class Collection {
 public:
  Collection(const AskPrometheus& ask, const Job& job) : ask_(ask) { state_.job = job; }

  JobState Collect() {
    AddRanks();
    AddProgress();
    AddStalled();
    AddDetail();
    AddProcesses();
    AddJudgements();
    AddAlerts();
    Sort();
    return std::move(state_);
  }

 private:
  std::vector<Sample> Ask(const std::string& query) const {
    QueryAnswer answer = ask_(query);
    if (!answer.fault.empty()) throw std::runtime_error(answer.fault);
    std::erase_if(answer.samples, [](const Sample& s) { return !std::isfinite(s.value); });
    return std::move(answer.samples);
  }
  // The series of one name, of the job; and of series that have no pods.
  std::string Of(const char* name) const {
    return fmt::format("{}{{{}}}", name, state_.job.PodMatchers());
  }
  std::string OfJob(const char* name) const {
    return fmt::format("{}{{{}}}", name, state_.job.Matchers());
  }

  void AddRanks() {
    std::map<std::string, JobCommunicator> communicators;
    std::set<ProcessKey> processes;
    for (const Sample& sample :
         Ask(fmt::format("group by (comm, comm_name, rank, gpu, hostname, {}) ({})", kProcessLabels,
                         Of("nccl_rank_info")))) {
      state_.time = sample.time;
      const JobPlace place = PlaceOf(sample);
      JobCommunicator& communicator = communicators[place.comm];
      communicator.id = place.comm;
      communicator.name = place.comm_name;
      communicator.ranks.push_back({.place = place});
      instances_.insert(place.instance);
      processes.insert(ProcessOf(place));
    }
    for (auto& [id, communicator] : communicators)
      state_.communicators.push_back(std::move(communicator));
    state_.nodes = instances_.size();
    state_.processes = processes.size();
    // Its ranks do not move from here on.
    for (JobCommunicator& communicator : state_.communicators) {
      communicators_[communicator.id] = &communicator;
      for (JobRank& rank : communicator.ranks) ranks_[{communicator.id, rank.place.rank}] = &rank;
    }
  }

  // Calls `set` with each rank, or each communicator, that the query has a value of.
  template <typename Set>
  void ForEachRank(const std::string& query, Set set) {
    for (const Sample& sample : Ask(query)) {
      const auto rank = ranks_.find({sample.Label("comm"), sample.Label("rank")});
      if (rank != ranks_.end()) set(*rank->second, sample);
    }
  }
  template <typename Set>
  void ForEachCommunicator(const std::string& query, Set set) {
    for (const Sample& sample : Ask(query)) {
      const auto communicator = communicators_.find(sample.Label("comm"));
      if (communicator != communicators_.end()) set(*communicator->second, sample);
    }
  }

  void AddProgress() {
    ForEachCommunicator(OfJob("comm:nccl_progress:changes"), [&](auto& communicator, auto& sample) {
      communicator.changes = std::max(communicator.changes.value_or(0), sample.value);
      state_.is_judged = true;
    });
    if (!state_.is_judged && Ask("count(comm:nccl_progress:changes)").empty())
      throw std::runtime_error(kNoRules);
    // Prometheus answers with series of the last five minutes.
    for (const Sample& age :
         Ask("min(time() - timestamp(" + OfJob("comm:nccl_progress:changes") + "))"))
      state_.rules_age = age.value;
    state_.is_timed = !Ask("count(" + OfJob("process:nccl_busy_seconds:rate") + ")").empty();
    AddUntimed();
    ForEachCommunicator("max by (comm) (" + Of("nccl_communicator_ranks") + ")",
                        [](auto& communicator, auto& sample) { communicator.size = sample.value; });
  }

  void AddUntimed() {
    if (Ask("sum(" + OfJob("job:nccl_ranks_untimed:count") + ")").empty()) return;
    for (const Sample& sample : Ask(fmt::format(
             "group by (timing_reason) (nccl_rank_info{{timing_source=~\"none|proxy\",{}}})",
             state_.job.PodMatchers())))
      state_.untimed_reasons.push_back(sample.Label("timing_reason"));
    std::ranges::sort(state_.untimed_reasons);
  }

  // Alert series, of ranks on which nothing has moved for some seconds.
  void AddStalled() {
    for (const auto& [name, field] :
         {std::pair{"nccl_stalled_progress", &JobRank::progress},
          std::pair{"nccl_stalled_started_sequence", &JobRank::started},
          std::pair{"nccl_stalled_operations_in_flight", &JobRank::in_flight}})
      ForEachRank(fmt::format("max by (comm, rank) ({})", Of(name)),
                  [field = field](auto& rank, auto& sample) { rank.*field = sample.value; });
    ForEachRank("min by (comm, rank, function) (" +
                    Of("nccl_stalled_oldest_in_flight_start_timestamp_seconds") + ")",
                [](JobRank& rank, const Sample& sample) {
                  if (!rank.function.empty() && rank.in_flight_since <= sample.value) return;
                  rank.function = sample.Label("function");
                  rank.in_flight_since = sample.value;
                });
    for (auto& [key, rank] : ranks_) {
      JobCommunicator& communicator = *communicators_.at(rank->place.comm);
      if (rank->started)
        communicator.started = std::max(communicator.started.value_or(0), *rank->started);
    }
  }

  void AddDetail() {
    ForEachCommunicator("max by (comm) (" + Of("nccl_collective_started_sequence") + ")",
                        [](auto& communicator, auto& sample) {
                          communicator.started =
                              std::max(communicator.started.value_or(0), sample.value);
                        });
    // Seconds that the clock of each node is ahead of the server's.
    std::map<std::string, double> ahead;
    const std::string clocks = fmt::format("nccl_exporter_snapshot_timestamp_seconds{{cluster={}}}",
                                           Quoted(state_.job.cluster));
    for (const Sample& sample :
         Ask(fmt::format("max by (instance) ({0} - timestamp({0}))", clocks)))
      ahead[sample.Label("instance")] = sample.value;
    const auto by_server = [&](double then, const std::string& instance) {
      const auto clock = ahead.find(instance);
      return clock == ahead.end() || then <= 0 ? 0 : then - clock->second;
    };
    for (auto& [key, rank] : ranks_)
      rank->in_flight_since = by_server(rank->in_flight_since, rank->place.instance);
    ForEachCommunicator(
        "max by (comm, instance) (" + Of("nccl_operations_last_progress_timestamp_seconds") + ")",
        [&](auto& communicator, auto& sample) {
          communicator.last_progress = std::max(communicator.last_progress,
                                                by_server(sample.value, sample.Label("instance")));
        });
  }

  void AddProcesses() {
    std::map<ProcessKey, Life> halted;
    const auto for_each = [&](const char* metric, int value, auto set) {
      for (const Sample& sample :
           Ask(fmt::format("group by ({}) ({} == {})", kProcessLabels, Of(metric), value)))
        set(ProcessOf(PlaceOf(sample)));
    };
    for_each("nccl_process_halted", 1, [&](auto process) { halted[process] = Life::kHalted; });
    // Detail is older: one that was stopped then may go on now.
    for_each("nccl_process_stopped", 1, [&](auto process) {
      if (halted.contains(process)) halted[process] = Life::kStopped;
    });
    for_each("nccl_process_alive", 0, [&](auto process) { halted[process] = Life::kEnded; });
    for (const auto& [key, rank] : ranks_) {
      const auto found = halted.find(ProcessOf(rank->place));
      if (found != halted.end()) rank->life = found->second;
    }
  }

  std::vector<Recorded> RecordedBy(const std::string& query) const {
    std::vector<Recorded> recorded;
    for (const Sample& sample : Ask(query))
      recorded.push_back({.place = PlaceOf(sample), .value = sample.value});
    return recorded;
  }

  void AddJudgements() {
    ForEachRank(Of("comm_rank:nccl_hang:waiting"), [](auto& rank, auto&) { rank.waits = true; });
    state_.culprits = RecordedBy(Of("comm_rank:nccl_hang:culprit"));
    state_.late_ranks = RecordedBy(Of("comm_rank:nccl_straggler:proved") + " or " +
                                   Of("comm_rank:nccl_straggler:deficit"));
    // Their series have no pods.
    state_.late_nodes = RecordedBy(OfJob("comm_node:nccl_straggler:proved") + " or " +
                                   OfJob("comm_node:nccl_straggler:deficit"));
    std::erase_if(state_.late_nodes,
                  [&](const Recorded& node) { return !communicators_.contains(node.place.comm); });
    const std::vector<Sample> waiting =
        Ask("sum(" + OfJob("job:nccl_waiting_gpu_seconds:rate") + ")");
    if (!waiting.empty() && state_.job.pod_prefix.empty())
      state_.waiting_gpus = waiting.front().value;
    for (const Recorded& missing : RecordedBy(Of("comm_rank:nccl_rank:missing"))) {
      state_.missing.insert(GpuOf(missing.place));
      // A target that is down has no other ranks.
      instances_.insert(missing.place.instance);
    }
  }

  void AddAlerts() {
    const std::string of_job = std::string(kAlerts) + "," + state_.job.Matchers();
    std::map<std::map<std::string, std::string>, double> since;
    const auto ask = [&](const std::string& matchers, auto is_of_job) {
      for (Sample& sample : Ask(fmt::format("ALERTS_FOR_STATE{{{}}}", matchers)))
        since[Unnamed(std::move(sample.labels))] = sample.value;
      for (Sample& sample : Ask(fmt::format("ALERTS{{alertstate=\"firing\",{}}}", matchers))) {
        if (!is_of_job(sample)) continue;
        JobAlert alert{.name = sample.Label("alertname"),
                       .severity = sample.Label("severity"),
                       .function = sample.Label("function"),
                       .place = PlaceOf(sample)};
        const auto found = since.find(Unnamed(std::move(sample.labels)));
        if (found != since.end()) alert.since = found->second;
        state_.alerts.push_back(std::move(alert));
      }
    };
    // A namespace has the alerts of all its pods.
    ask(of_job, [&](const Sample& sample) {
      return state_.job.pod_prefix.empty() || sample.Label("comm").empty() ||
             communicators_.contains(sample.Label("comm"));
    });
    ask(kTargetAlerts, [&](const Sample& sample) {
      const std::string& uid = sample.Label("uid");
      const std::string& cluster = sample.Label("cluster");
      return instances_.contains(sample.Label("instance")) &&
             (uid.empty() || uid == state_.job.uid) &&
             (cluster.empty() || cluster == state_.job.cluster);
    });
  }

  // The labels that ALERTS and ALERTS_FOR_STATE have in common.
  static std::map<std::string, std::string> Unnamed(std::map<std::string, std::string> labels) {
    labels.erase("__name__");
    labels.erase("alertstate");
    return labels;
  }

  void Sort() {
    for (JobCommunicator& communicator : state_.communicators)
      std::ranges::sort(communicator.ranks, {},
                        [](const JobRank& rank) { return Order(rank.place.rank); });
    std::ranges::stable_sort(state_.communicators, std::ranges::greater(), [](const auto& c) {
      return std::max(c.size, static_cast<double>(c.ranks.size()));
    });
    std::ranges::stable_sort(state_.alerts, {}, [](const JobAlert& alert) {
      return std::tuple(alert.severity != "critical", alert.severity != "warning", alert.since,
                        Order(alert.place.global_rank));
    });
  }

  const AskPrometheus& ask_;
  JobState state_;
  std::map<std::string, JobCommunicator*> communicators_;          // by id
  std::map<std::pair<std::string, std::string>, JobRank*> ranks_;  // by communicator and rank
  std::set<std::string> instances_;
};

}  // namespace

Motion JobCommunicator::motion() const {
  const auto all = [&](auto condition) { return std::ranges::all_of(ranks, condition); };
  const auto any_lives = [&](auto condition) {
    return std::ranges::any_of(
        ranks, [&](const JobRank& rank) { return rank.life == Life::kLives && condition(rank); });
  };
  if (!any_lives([](const JobRank&) { return true; })) return Motion::kEnded;
  if (any_lives([](const JobRank& rank) { return rank.waits; })) return Motion::kWaits;
  if (all([](const JobRank& rank) { return rank.progress.has_value(); })) {
    if (any_lives([](const JobRank& rank) { return rank.in_flight.value_or(0) > 0; }))
      return Motion::kHeld;
    if (all([](const JobRank& rank) { return *rank.progress == 0; })) return Motion::kUnused;
    if (all([](const JobRank& rank) { return rank.in_flight.has_value(); })) return Motion::kIdle;
  }
  return changes.value_or(0) > 0 ? Motion::kMoves : Motion::kUnknown;
}

std::optional<JobState> JobStateOf(const AskPrometheus& ask, const Job& job, std::string& fault) {
  try {
    return Collection(ask, job).Collect();
  } catch (const std::runtime_error& wrong) {
    fault = wrong.what();
    return std::nullopt;
  }
}

}  // namespace nccl_exporter::exporter
