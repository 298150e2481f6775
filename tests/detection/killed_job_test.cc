// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter report` of jobs that hung until they were killed, from their segments alone: no
// daemon, no Prometheus. It names the ranks that the alerts of the scenario must name, and no
// other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collector/collector.h"
#include "collector/node_snapshot.h"
#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "tests/detection/scenario.h"
#include "tests/system/daemon.h"

namespace nccl_exporter::detection {
namespace {

using nlohmann::json;

// Ranks are killed while they compute, and not inside an operation: docs/report.md. A stage of a
// pipeline is inside one nearly always, but for the end of a step.
uint64_t SeedOf(const std::string& file) { return file.ends_with("/killed-rank-pp.json") ? 1 : 7; }

// The victim is in an operation that is not seen, or may be: nobody can be named.
const std::set<std::string> kNotSeen{"killed-rank-moe", "killed-rank-unseen-completions"};
constexpr const char* kJob = "4711";
constexpr int64_t kWaitedNs = 4'000'000'000;  // twice the threshold of a hang by kTimeScale
constexpr const char* kTimeScale = "--findings.time-scale=60";

bool NamesARank(const Expectation& expectation) {
  return expectation.alert == "culprit" && expectation.rank >= 0;
}

std::vector<std::string> HangScenarios() {
  std::vector<std::string> files = ScenarioFiles("tests/scenarios");
  std::erase_if(files, [](const std::string& file) {
    return std::ranges::none_of(ReadScenario(file, SeedOf(file)).expected, NamesARank);
  });
  return files;
}

// Whether the incident is one in real time only: a stopped process, or a rank that is late and may
// go on.
bool IsInRealTime(const std::string& option) {
  return option.starts_with("stop:") || option.starts_with("pause:");
}

bool HasWaited(const collector::NodeSnapshot& node) {
  for (const collector::ProcessSnapshot& process : node.processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.in_flight.empty() &&
          node.taken_realtime_ns - communicator.in_flight.front().start_realtime_ns > kWaitedNs)
        return true;
    }
  }
  return false;
}

class KilledJob : public testing::TestWithParam<std::string> {
 protected:
  KilledJob() : scenario_(ReadScenario(GetParam(), SeedOf(GetParam()))) {
    for (int node = 0; node < scenario_.nodes(); ++node) {
      directories_.push_back(scratch_.path() + "/segments" + std::to_string(node));
      std::filesystem::create_directory(directories_.back());
    }
  }

  // Plays the job as fast as it goes, in times that end now. Its processes end without finalizing,
  // as if they were killed.
  void Play(Job job) const {
    if (std::ranges::any_of(job.options, IsInRealTime)) return PlayAndKill(std::move(job));
    job.options.push_back("--no-finalize");
    const exporter::Finished played = exporter::RunToEnd(CommandOf(job), kEnvironment);
    EXPECT_EQ(played.exit_code, 0) << played.output;
  }

  // Plays it in real time, and kills all processes when some have waited.
  void PlayAndKill(Job job) const {
    static const std::regex kFrom("from=[0-9]+");
    for (std::string& option : job.options) {
      if (IsInRealTime(option)) option = std::regex_replace(option, kFrom, "from=4");
    }
    job.options.push_back("--pace=real");
    exporter::ChildProcess launcher(CommandOf(job), kEnvironment);
    EXPECT_TRUE(exporter::Eventually([&] { return HasWaited(*Snapshot()); }))
        << launcher.AllOutput();
    const auto node = Snapshot();
    for (const collector::ProcessSnapshot& process : node->processes) {
      if (process.is_alive) kill(static_cast<pid_t>(process.pid), SIGKILL);
    }
    launcher.Wait();
  }

  std::shared_ptr<collector::NodeSnapshot> Snapshot() const {
    return collector::Collector({.directories = directories_}).Snapshot();
  }

  std::vector<std::string> CommandOf(const Job& job) const {
    std::vector<std::string> options{"--rate=5",
                                     "--compute-share=0.6",
                                     "--channels=2",
                                     "--network-chunk=4194304",
                                     "--network-poll=20000",
                                     "--network-repeats=4",
                                     "--duration=" + std::to_string(job.until - job.from)};
    if (job.name.empty()) options.push_back(std::string("--slurm-job-id=") + kJob);
    options.insert(options.end(), job.options.begin(), job.options.end());
    return SimulatorCommand(scratch_.path() + "/segments%n", scratch_.path() + "/truth.json",
                            options);
  }

  // Ranks that the report of these nodes names as the cause of a hang.
  std::set<int> Named(const std::vector<int>& nodes, const Expectation& expected) const {
    std::vector<std::string> command{kDaemonPath,
                                     "report",
                                     "--segments",
                                     "--daemon=none",
                                     "--job=" + (expected.job.empty() ? kJob : expected.job),
                                     kTimeScale,
                                     "--json"};
    for (const int node : nodes)
      command.push_back("--segment.dir=" + directories_[static_cast<size_t>(node)]);
    const exporter::Finished report = exporter::RunToEnd(command);
    EXPECT_EQ(report.exit_code, 0) << report.output;
    const json answer = json::parse(report.output);
    std::set<int> named;
    for (const json& event : answer["events"]) {
      if (event["name"] != "hang_culprit" && event["name"] != "hang_other_call") continue;
      EXPECT_EQ(event["severity"], "info") << "it is not known whether it hung";
      if (event["labels"].contains("hostname"))
        named.insert(RankOf(event["labels"], nodes.size() == 1 ? nodes.front() : NodeOf(expected)));
    }
    return named;
  }

  int NodeOf(const Expectation& expected) const { return expected.rank / ranks_per_node_; }

  // GPUs of one process have no proven numbers, but each its GPU; in a pod the communicator is the
  // world.
  int RankOf(const json& labels, int node) const {
    if (labels.contains("global_rank")) return std::stoi(labels["global_rank"].get<std::string>());
    if (labels.contains("gpu"))
      return node * ranks_per_node_ + std::stoi(labels["gpu"].get<std::string>());
    return std::stoi(labels["rank"].get<std::string>());
  }

  static inline const std::map<std::string, std::string> kEnvironment{
      {"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}};
  const Scenario scenario_;
  const int ranks_per_node_ = scenario_.jobs.front().ranks_per_node;
  const collector::ScratchDirectory scratch_;
  std::vector<std::string> directories_;  // by node
};

INSTANTIATE_TEST_SUITE_P(Scenarios, KilledJob, testing::ValuesIn(HangScenarios()),
                         [](const auto& test) {
                           std::string name = std::filesystem::path(test.param).stem();
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(KilledJob, NamesWhomTheAlertNames) {
  for (const Job& job : scenario_.jobs) {
    if (job.from == 0) Play(job);  // a later one is a restart
  }
  for (const Expectation& expected : scenario_.expected) {
    if (!NamesARank(expected)) continue;
    const int first = expected.rank / expected.ranks * expected.ranks;
    const auto are_its =
        testing::Each(testing::AllOf(testing::Ge(first), testing::Lt(first + expected.ranks)));
    std::vector<int> nodes(directories_.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    const std::set<int> named = Named(nodes, expected);
    EXPECT_EQ(named.empty(), kNotSeen.contains(scenario_.name));
    EXPECT_THAT(named, are_its);
    for (const int node : nodes) EXPECT_THAT(Named({node}, expected), are_its) << node;
  }
}

}  // namespace
}  // namespace nccl_exporter::detection
