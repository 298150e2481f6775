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
#include "tests/detection/screen_watch.h"
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
    for (const Expectation& expectation : WithPageExpectations(scenario).expected) {
      if (IsPageClass(expectation.alert) && expectation.rank >= 0) WatchScreens(expectation);
    }
  }

  PlayedScenario Play() {
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
    PlayedScenario played;
    for (Watched& watched : watched_) {
      for (Screen& screen : watched.screens->TakeScreens())
        played.screens.push_back(std::move(screen));
    }
    const Directory directory = EndJobs();
    played.verdict = Judge(WithPageExpectations(scenario_), {alerts_.begin(), alerts_.end()},
                           directory, rules_.class_of);
    JudgeScreens(played.screens, directory, played.verdict);
    return played;
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
    std::vector<std::string> options{
        "--pace=real", "--rate=5", "--compute-share=0.6", "--channels=2",
        // Large steps, seldom looked at: less CPU, the same operations.
        "--network-chunk=4194304", "--network-poll=20000", "--network-repeats=4",
        "--slurm-job-id=" + std::to_string(4711 + number), "--duration=" + std::to_string(seconds)};
    options.insert(options.end(), job.options.begin(), job.options.end());
    jobs_[number] = std::make_unique<exporter::ChildProcess>(
        SimulatorCommand(monitoring_.SegmentDirectory(), TruthOf(number), options),
        std::map<std::string, std::string>{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                           {"NCCL_ALLGATHERV_ENABLE", "0"},
                                           {"NCCL_EXPORTER_RETENTION_SECONDS",
                                            std::to_string(static_cast<int>(rules_.retention_s))}});
  }

  // Of the expectation of a finding.
  struct Watched {
    std::string its_class;
    std::string node;
    std::unique_ptr<ScreenWatch> screens;
    int looks = 0;
  };

  void WatchScreens(const Expectation& expectation) {
    const int node = expectation.rank / scenario_.jobs.front().ranks_per_node;
    watched_.push_back(
        {.its_class = expectation.alert,
         .node = std::to_string(node),
         .screens = std::make_unique<ScreenWatch>(monitoring_.TopCommand(node), expectation.rank)});
  }

  // When the node's findings first name somebody, and when they do near the end.
  void NoteScreens(const std::vector<PagedAlert>& findings) {
    constexpr double kEndSeconds = 6;
    const double now_s = UnixNow() - start_s_;
    for (Watched& watched : watched_) {
      FoundCulprits culprits;
      for (const PagedAlert& finding : findings) {
        const auto its_class = rules_.class_of.find(finding.Label("alertname"));
        if (its_class == rules_.class_of.end() || its_class->second != watched.its_class ||
            finding.Label("node") != watched.node || finding.culprit.empty())
          continue;
        culprits[{finding.Label("comm"), finding.Label("rank")}] = finding.culprit;
      }
      if (culprits.empty() || watched.looks > 1) continue;
      if (watched.looks == 1 && now_s < scenario_.seconds - kEndSeconds) continue;
      if (watched.screens->Look(watched.looks == 0 ? "first" : "end", now_s, culprits))
        ++watched.looks;
    }
  }

  void NoteAlerts() {
    const std::vector<PagedAlert> findings = monitoring_.Findings();
    NoteScreens(findings);
    for (PagedAlert alert : findings) {
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
  std::vector<Watched> watched_;
};

}  // namespace

PlayedScenario RunScenario(const Scenario& scenario, const RuleSet& rules) {
  return Run(scenario, rules).Play();
}

}  // namespace nccl_exporter::detection
