// SPDX-License-Identifier: Apache-2.0
// A short selection of the benchmark: a rank that is late and a rank that hangs are named, and a
// healthy job is left alone. Judges alerts, not how fast they come.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/tmux.h"
#include "tests/detection/monitoring.h"
#include "tests/detection/scenario_run.h"

namespace nccl_exporter::detection {
namespace {

constexpr double kSeconds = 45;  // the fault begins at 30 s, and the page takes 6 s to name it
constexpr uint64_t kSeed = 1;

struct Played {
  Verdict verdict;
  std::string trouble;
};

Played Play(const std::string& name, const RuleSet& rules) {
  Scenario scenario = ReadScenario("tests/scenarios/" + name + ".json", kSeed);
  for (Job& job : scenario.jobs) {
    if (job.until == scenario.seconds) job.until = kSeconds;
  }
  scenario.seconds = kSeconds;
  try {
    const PlayedScenario played = RunScenario(scenario, rules);
    return {.verdict = played.verdict, .trouble = played.busy};
  } catch (const VoidRun& run) {
    return {.verdict = {}, .trouble = run.what()};
  }
}

TEST(Detection, NamesWhoIsLateOrHangsAndLeavesTheHealthyAlone) {
  for (const char* program : {kDebianPrometheus, kAlertmanager, exporter::kTmux}) {
    if (access(program, X_OK) != 0) GTEST_SKIP() << program << " is not installed";
  }
  const collector::ScratchDirectory directory;
  const exporter::Finished generated = exporter::RunToEnd(
      {"deploy/prometheus/generate-rules", "--time-scale", "15", "--output", directory.path()});
  ASSERT_EQ(generated.exit_code, 0) << generated.output;
  std::filesystem::copy("tests/detection/detection.json", directory.path());
  const RuleSet rules = ReadRuleSet(directory.path());

  const std::vector<std::string> names{"slow-rank/slow-rank-50-percent",
                                       "wrong-call/missing-call-dp", "quiet/quiet-fsdp"};
  std::vector<Played> played(names.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < names.size(); ++i)
    threads.emplace_back([&, i] { played[i] = Play(names[i], rules); });
  for (std::thread& thread : threads) thread.join();

  for (size_t i = 0; i < names.size(); ++i) {
    if (!played[i].trouble.empty()) GTEST_SKIP() << names[i] << ": " << played[i].trouble;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(played[i].verdict.complaints, std::vector<std::string>()) << names[i];
  }
}

}  // namespace
}  // namespace nccl_exporter::detection
