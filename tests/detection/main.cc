// SPDX-License-Identifier: Apache-2.0
// The detection benchmark: plays scenarios with several seeds and prints what the alerts under test
// were worth.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "exporter/testing/tmux.h"
#include "tests/detection/monitoring.h"
#include "tests/detection/scenario.h"
#include "tests/detection/scenario_run.h"
#include "tests/detection/scoreboard.h"

namespace nccl_exporter::detection {
namespace {

struct Options {
  std::string scenarios = "tests/scenarios";
  std::string rules;
  std::string prometheus = kDebianPrometheus;
  std::vector<std::string> only;
  int seeds = 5;
  int first_seed = 1;
  int parallel = 2;
  int attempts = 3;
  std::string json;
};

bool IsChosen(const Options& options, const std::string& file) {
  const std::string name = std::filesystem::path(file).stem();
  return options.only.empty() ||
         std::any_of(options.only.begin(), options.only.end(),
                     [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

nlohmann::json ScreensJson(const std::vector<Screen>& screens) {
  nlohmann::json list = nlohmann::json::array();
  for (const Screen& screen : screens) {
    if (!screen.is_asked) continue;
    std::vector<std::string> lines;
    std::istringstream text(screen.text);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    list.push_back({{"class", screen.size.Class()},
                    {"moment", screen.moment},
                    {"at", screen.at_s},
                    {"lacks", screen.lacks},
                    {"lines", lines}});
  }
  return list;
}

nlohmann::json AlertsJson(const std::vector<PagedAlert>& alerts) {
  nlohmann::json list = nlohmann::json::array();
  for (const PagedAlert& alert : alerts) {
    if (alert.Label("alertname") == kWatchdog) continue;
    list.push_back({{"labels", alert.labels},
                    {"names", alert.named},
                    {"started", alert.started_s},
                    {"seen", alert.seen_s}});
  }
  return list;
}

class Benchmark {
 public:
  explicit Benchmark(const Options& options)
      : options_(options), rules_(ReadRuleSet(options.rules)) {
    rules_.prometheus = options.prometheus;
    for (int seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
      for (const std::string& file : ScenarioFiles(options.scenarios)) {
        if (IsChosen(options, file))
          scenarios_.push_back({ReadScenario(file, static_cast<uint64_t>(seed)), seed});
      }
    }
  }

  // The exit code.
  int Run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < options_.parallel; ++i) threads.emplace_back([this] { PlayAll(); });
    for (std::thread& thread : threads) thread.join();
    printf("\n%s", scoreboard_.Table(rules_.evaluation_interval_s).c_str());
    printf("void %d, not run %d\n", void_, failed_);
    printf("attempts that were void %d, of these not ok as well %d\n", voided_,
           voided_with_complaints_);
    printf("parity of rules and judge: %zu of %zu evaluations differ\n", differing_, evaluations_);
    if (!options_.json.empty()) WriteJson();
    return scoreboard_.flawed_runs() == 0 && failed_ == 0 && void_ == 0 && !scenarios_.empty() ? 0
                                                                                               : 1;
  }

 private:
  void WriteJson() const {
    nlohmann::json json = scoreboard_.Json(rules_.evaluation_interval_s);
    json["void"] = void_;
    json["void_attempts"] = voided_;
    json["void_attempts_not_ok"] = voided_with_complaints_;
    json["not_run"] = failed_;
    json["played"] = played_;
    std::ofstream file(options_.json);
    if (!(file << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n"))
      throw std::runtime_error("cannot write " + options_.json);
  }

  // Under the lock.
  void Note(const Scenario& scenario, int seed, const std::string& result,
            const std::vector<std::string>& complaints, const PlayedScenario& played = {}) {
    nlohmann::json delays_s = nlohmann::json::object();
    for (const auto& [name, counts] : played.verdict.classes) delays_s[name] = counts.delays_s;
    voided_ += result == "void" ? 1 : 0;
    voided_with_complaints_ += result == "void" && !played.verdict.complaints.empty() ? 1 : 0;
    played_.push_back({{"scenario", scenario.name},
                       {"seed", seed},
                       {"result", result},
                       {"complaints", complaints},
                       {"delays_s", delays_s},
                       {"alerts", AlertsJson(played.alerts)},
                       {"parity",
                        {{"evaluations", played.parity.evaluations},
                         {"differing", played.parity.differing},
                         {"differences", played.parity.differences}}},
                       {"screens", ScreensJson(played.screens)}});
    printf("%-40s seed %d: %s\n", scenario.name.c_str(), seed, result.c_str());
    for (const std::string& complaint : complaints) printf("    %s\n", complaint.c_str());
    for (const std::string& difference : played.parity.differences)
      printf("    parity: %s\n", difference.c_str());
    evaluations_ += played.parity.evaluations;
    differing_ += played.parity.differing;
    fflush(stdout);
  }

  void PlayAll() {
    for (size_t i = next_++; i < scenarios_.size(); i = next_++)
      Play(scenarios_[i].first, scenarios_[i].second);
  }

  void Play(const Scenario& scenario, int seed) {
    for (int attempt = 1; attempt <= options_.attempts; ++attempt) {
      if (PlayOnce(scenario, seed)) return;
    }
    const std::lock_guard lock(mutex_);
    ++void_;
  }

  // Whether the run counts.
  bool PlayOnce(const Scenario& scenario, int seed) {
    try {
      const PlayedScenario played = RunScenario(scenario, rules_);
      const Verdict& verdict = played.verdict;
      const std::lock_guard lock(mutex_);
      if (!played.busy.empty()) {
        std::vector<std::string> lines{"the machine is too busy: " + played.busy};
        lines.insert(lines.end(), verdict.complaints.begin(), verdict.complaints.end());
        Note(scenario, seed, "void", lines, played);
        return false;
      }
      scoreboard_.Add(scenario, verdict);
      Note(scenario, seed, verdict.complaints.empty() ? "ok" : "flawed", verdict.complaints,
           played);
    } catch (const VoidRun& error) {
      const std::lock_guard lock(mutex_);
      Note(scenario, seed, "void", {error.what()});
      return false;
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      ++failed_;
      Note(scenario, seed, "did not run", {error.what()});
    }
    return true;
  }

  const Options options_;
  RuleSet rules_;
  std::vector<std::pair<Scenario, int>> scenarios_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  Scoreboard scoreboard_;
  nlohmann::json played_ = nlohmann::json::array();
  int failed_ = 0;
  int void_ = 0;            // runs without an attempt that counts
  int voided_ = 0;          // attempts
  size_t evaluations_ = 0;  // in which rules and judge are compared, and in which they differ
  size_t differing_ = 0;
  int voided_with_complaints_ = 0;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Plays scenarios to the real plugin, daemons, Prometheus and Alertmanager, and judges the "
      "alerts.",
      "detection");
  app.option_defaults()->always_capture_default();
  app.add_option("--scenarios", options.scenarios, "directory of the scenarios");
  app.add_option("--rules", options.rules, "directory of the rules, with detection.json")
      ->required();
  app.add_option("--prometheus", options.prometheus, "program that evaluates the rules");
  app.add_option("--only", options.only, "scenarios whose name contains this (repeatable)");
  app.add_option("--seeds", options.seeds, "runs of each scenario")->check(CLI::Range(1, 1000));
  app.add_option("--first-seed", options.first_seed, "seed of the first run");
  app.add_option("--parallel", options.parallel, "scenarios at once")->check(CLI::Range(1, 64));
  app.add_option("--attempts", options.attempts,
                 "of a run that is void because the machine was too busy")
      ->check(CLI::Range(1, 100));
  app.add_option("--json", options.json,
                 "file to write the table and the result of each run to, for programs");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& program :
       {options.prometheus, std::string(kAlertmanager), std::string(exporter::kTmux)}) {
    if (access(program.c_str(), X_OK) == 0) continue;
    fprintf(stderr, "detection: %s is not installed\n", program.c_str());
    return 1;
  }
  try {
    return Benchmark(options).Run();
  } catch (const std::exception& error) {
    fprintf(stderr, "detection: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace nccl_exporter::detection

int main(int argc, char** argv) { return nccl_exporter::detection::Main(argc, argv); }
