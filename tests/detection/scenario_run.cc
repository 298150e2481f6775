// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/scenario_run.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
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
      // The first finding of a screen may be of another job.
      if (IsPageClass(expectation.alert) && expectation.rank >= 0 && expectation.job.empty())
        WatchScreens(expectation);
    }
  }

  PlayedScenario Play() {
    start_s_ = UnixNow();
    std::optional<ParityWatch> parity;
    if (scenario_.nodes() == 1) parity.emplace(monitoring_.scratch() + "/segments0", rules_);
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
    PlayedScenario played;
    if (parity) played.parity = parity->Stop(monitoring_.scratch());
    std::vector<std::string> faults = CheckWatchers(played.busy);
    for (Watched& watched : watched_) {
      for (Screen& screen : watched.screens->TakeScreens())
        played.screens.push_back(std::move(screen));
    }
    CheckReport(faults);
    const Directory directory = EndJobs(played.busy);
    for (const auto& [key, alert] : alerts_) played.alerts.push_back(Named(alert, directory));
    played.verdict =
        Judge(WithPageExpectations(scenario_), played.alerts, directory, rules_.class_of);
    JudgeScreens(played.screens, directory, played.verdict);
    std::ranges::move(faults, std::back_inserter(played.verdict.complaints));
    return played;
  }

 private:
  // Returns the faults of the watchers. Sets `busy` if Prometheus had too little time, unless the
  // scenario itself restarts or suspends the watchers.
  std::vector<std::string> CheckWatchers(std::string& busy) {
    std::vector<std::string> faults = monitoring_.Faults();
    if (!scenario_.actions.empty()) return faults;
    constexpr double kDiscoverySeconds = 6;  // Prometheus looks for targets every 5 s
    const double seconds = scenario_.seconds - kDiscoverySeconds;
    busy = monitoring_.Neglected(seconds);
    std::ranges::move(monitoring_.Unanswered(seconds), std::back_inserter(faults));
    return faults;
  }

  // The report of a job, by Prometheus, names every culprit of a hang that an alert has named.
  void CheckReport(std::vector<std::string>& faults) const {
    for (const auto& [key, alert] : alerts_) {
      const std::string name = alert.Label("alertname");
      if (name != "NCCLHangCulprit" && name != "NCCLHangMismatchedCall") continue;
      const auto is_it = [&alert = alert](const PagedAlert& reported) {
        return std::ranges::all_of(reported.labels, [&](const auto& label) {
          return alert.Label(label.first) == label.second;
        });
      };
      const std::vector<PagedAlert> reported = monitoring_.Reported(alert);
      if (std::ranges::any_of(reported, is_it)) continue;
      std::string text = "not in the report: " + nlohmann::json(alert.labels).dump() + "; it has:";
      for (const PagedAlert& other : reported) text += ' ' + nlohmann::json(other.labels).dump();
      faults.push_back(text);
    }
  }

  static void CheckSteps(const nlohmann::json& rank, std::string& busy) {
    const double late = rank["process_late_steps"].get<double>() /
                        std::max(rank["process_steps"].get<double>(), 1.0);
    if (late > kMostMissing)
      busy = "late steps of rank " + rank["rank"].dump() + ": " + std::to_string(late);
  }

  // The alert with the rank or the node that it names, by the truth.
  static PagedAlert Named(PagedAlert alert, const Directory& directory) {
    if (const std::optional<int> rank = directory.RankOf(alert)) {
      alert.named = "rank " + std::to_string(*rank);
    } else if (const std::optional<int> node = directory.NodeOf(alert)) {
      alert.named = "node " + std::to_string(*node);
    }
    return alert;
  }

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
        "--duration=" + std::to_string(seconds)};
    if (job.name.empty()) options.push_back("--slurm-job-id=" + std::to_string(4711 + number));
    options.insert(options.end(), job.options.begin(), job.options.end());
    jobs_[number] = std::make_unique<exporter::ChildProcess>(
        SimulatorCommand(monitoring_.SegmentDirectory(), TruthOf(number), options),
        std::map<std::string, std::string>{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                           {"NCCL_ALLGATHERV_ENABLE", "0"},
                                           {"NCCL_EXPORTER_RETENTION_SECONDS",
                                            std::to_string(static_cast<int>(rules_.retention_s))}});
  }

  // The watch for an expected finding.
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

  // When the node's findings first name a rank, and when they do near the end.
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
    const double now_s = UnixNow() - start_s_;
    for (PagedAlert alert : findings) {
      // A finding has no start of its own: it begins when it is shown, also after a time without it.
      const auto shown = shown_.try_emplace(alert.labels, Shown{now_s, now_s}).first;
      if (now_s - shown->second.seen_s > kLongestGapSeconds) shown->second.started_s = now_s;
      shown->second.seen_s = now_s;
      alert.started_s = shown->second.started_s;
      Note({alert.started_s, alert.labels}, alert, now_s);
    }
    for (PagedAlert& alert : monitoring_.Alerts().value_or(std::vector<PagedAlert>())) {
      alert.started_s -= start_s_;
      Note({alert.started_s, alert.labels}, alert, now_s);
    }
  }

  struct Shown {
    double started_s, seen_s;
  };
  using AlertKey = std::pair<double, std::map<std::string, std::string>>;

  void Note(const AlertKey& key, const PagedAlert& alert, double now_s) {
    alerts_.try_emplace(key, alert).first->second.seen_s = now_s;
  }

  Directory EndJobs(std::string& busy) {
    Directory directory{.global_ranks = {},
                        .ranks_per_node = scenario_.jobs.front().ranks_per_node};
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i] == nullptr) continue;
      if (jobs_[i]->IsRunning()) jobs_[i]->Signal(SIGTERM);
      if (jobs_[i]->Wait() != 0)
        throw std::runtime_error("the job failed: " + jobs_[i]->AllOutput());
      const nlohmann::json truth = nlohmann::json::parse(std::ifstream(TruthOf(i)));
      for (const auto& rank : truth["ranks"]) {
        CheckSteps(rank, busy);
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
  std::map<AlertKey, PagedAlert> alerts_;  // and findings, that were shown
  std::map<std::map<std::string, std::string>, Shown> shown_;  // findings, by labels
  double start_s_ = 0;
  std::vector<Watched> watched_;
};

}  // namespace

PlayedScenario RunScenario(const Scenario& scenario, const RuleSet& rules) {
  return Run(scenario, rules).Play();
}

}  // namespace nccl_exporter::detection
