// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/scenario_run.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "tests/detection/monitoring.h"
#include "tests/system/daemon.h"

namespace nccl_exporter::detection {
namespace {

double UnixNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Run {
 public:
  Run(const Scenario& scenario, const RuleSet& rules)
      : scenario_(scenario),
        rules_(rules),
        monitoring_(scenario.nodes(), rules),
        jobs_(scenario.jobs.size()) {
    for (const Action& action : scenario.actions) {
      due_.insert({action.at, [this, action] { Do(action); }});
      if (action.deed != Deed::kHoldDaemon) continue;
      due_.insert({action.at + action.seconds,
                   [this, action] { monitoring_.HoldDaemon(action.node, false); }});
    }
    for (size_t i = 0; i < jobs_.size(); ++i)
      due_.insert({scenario.jobs[i].from, [this, i] { StartJob(i); }});
  }

  Verdict Play() {
    start_s_ = UnixNow();
    while (UnixNow() - start_s_ < scenario_.seconds) {
      while (!due_.empty() && due_.begin()->first <= UnixNow() - start_s_) {
        const auto action = due_.extract(due_.begin());
        action.mapped()();
      }
      NoteAlerts();
      constexpr int kPollMilliseconds = 200;
      exporter::SleepMilliseconds(kPollMilliseconds);
    }
    NoteAlerts();
    CheckWatchers();
    const Directory directory = EndJobs();
    return Judge(WithPageExpectations(scenario_), {alerts_.begin(), alerts_.end()}, directory,
                 rules_.class_of);
  }

 private:
  // Who tampers with the watchers makes gaps of his own.
  void CheckWatchers() const {
    if (!scenario_.actions.empty()) return;
    constexpr double kDiscoverySeconds = 6;  // Prometheus looks for targets every 5 s
    const std::optional<int> nodes =
        monitoring_.NodesWithGaps(scenario_.seconds - kDiscoverySeconds);
    if (nodes != 0)
      throw VoidRun("the machine is too busy: too few scrapes of " +
                    std::to_string(nodes.value_or(-1)) + " nodes");
    const double missed = monitoring_.MissedEvaluations().value_or(1);
    if (missed > kMostMissing)
      throw VoidRun("the machine is too busy: evaluations missed: " + std::to_string(missed));
  }

  static void CheckSteps(const nlohmann::json& rank) {
    const double late = rank["process_late_steps"].get<double>() /
                        std::max(rank["process_steps"].get<double>(), 1.0);
    if (late > kMostMissing)
      throw VoidRun("the machine is too busy: late steps of rank " + rank["rank"].dump() + ": " +
                    std::to_string(late));
  }

  struct IsEarlier {
    bool operator()(const PagedAlert& a, const PagedAlert& b) const {
      return std::tie(a.started_s, a.labels) < std::tie(b.started_s, b.labels);
    }
  };

  void Do(const Action& action) {
    if (action.deed == Deed::kRestartDaemon) monitoring_.RestartDaemon(action.node);
    if (action.deed == Deed::kHoldDaemon) monitoring_.HoldDaemon(action.node, true);
    if (action.deed == Deed::kRestartPrometheus) monitoring_.RestartPrometheus();
  }

  std::string TruthOf(size_t job) const {
    return monitoring_.scratch() + "/truth" + std::to_string(job) + ".json";
  }

  void StartJob(size_t number) {
    constexpr double kBeyondTheEnd = 60;
    const Job& job = scenario_.jobs[number];
    const double seconds =
        job.until < scenario_.seconds ? job.until - job.from : scenario_.seconds + kBeyondTheEnd;
    std::vector<std::string> options{"--pace",          "real",
                                     "--rate",          "5",
                                     "--compute-share", "0.6",
                                     "--channels",      "2",
                                     "--slurm-job-id",  std::to_string(4711 + number),
                                     "--duration",      std::to_string(seconds)};
    options.insert(options.end(), job.options.begin(), job.options.end());
    jobs_[number] = std::make_unique<exporter::ChildProcess>(
        SimulatorCommand(monitoring_.SegmentDirectory(), TruthOf(number), options),
        std::map<std::string, std::string>{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                           {"NCCL_ALLGATHERV_ENABLE", "0"},
                                           {"NCCL_EXPORTER_RETENTION_SECONDS",
                                            std::to_string(static_cast<int>(rules_.retention_s))}});
  }

  void NoteAlerts() {
    for (PagedAlert& alert : monitoring_.Findings()) {
      if (!findings_.insert(alert.labels).second) continue;
      alert.started_s = UnixNow() - start_s_;
      alerts_.insert(std::move(alert));
    }
    for (PagedAlert& alert : monitoring_.Alerts().value_or(std::vector<PagedAlert>())) {
      alert.started_s -= start_s_;
      alerts_.insert(std::move(alert));
    }
  }

  Directory EndJobs() {
    Directory directory{.global_ranks = {},
                        .ranks_per_node = scenario_.jobs.front().ranks_per_node};
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i] == nullptr) continue;
      if (jobs_[i]->IsRunning()) jobs_[i]->Signal(SIGTERM);
      if (jobs_[i]->Wait() != 0)
        throw std::runtime_error("the job failed: " + jobs_[i]->AllOutput());
      const nlohmann::json truth = nlohmann::json::parse(std::ifstream(TruthOf(i)));
      for (const auto& rank : truth["ranks"]) {
        CheckSteps(rank);
        for (const auto& communicator : rank["communicators"]) {
          const std::pair key(communicator["id"].get<std::string>(),
                              std::to_string(communicator["rank"].get<int>()));
          directory.global_ranks[key] = rank["rank"];
        }
      }
    }
    return directory;
  }

  const Scenario& scenario_;
  const RuleSet& rules_;
  Monitoring monitoring_;
  std::vector<std::unique_ptr<exporter::ChildProcess>> jobs_;
  std::multimap<double, std::function<void()>> due_;
  std::set<PagedAlert, IsEarlier> alerts_;
  std::set<std::map<std::string, std::string>> findings_;  // that were seen
  double start_s_ = 0;
};

}  // namespace

Verdict RunScenario(const Scenario& scenario, const RuleSet& rules) {
  return Run(scenario, rules).Play();
}

}  // namespace nccl_exporter::detection
