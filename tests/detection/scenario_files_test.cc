// SPDX-License-Identifier: Apache-2.0
// Every scenario can be read and is understood by the simulator; there are enough, and enough of
// them quiet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

#include "simulator/job/job_options.h"
#include "tests/detection/scenario.h"

namespace nccl_exporter::detection {
namespace {

constexpr char kDirectory[] = "tests/scenarios";

TEST(ScenarioFiles, AreUnderstoodByTheSimulator) {
  for (const std::string& file : ScenarioFiles(kDirectory)) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const Scenario scenario = ReadScenario(file, seed);
      EXPECT_FALSE(scenario.says.empty()) << file;
      for (const Job& job : scenario.jobs) {
        std::vector<const char*> arguments{"nccl-sim"};
        for (const std::string& option : job.options) arguments.push_back(option.c_str());
        sim::JobOptions options;
        EXPECT_EQ(
            sim::ParseJobOptions(static_cast<int>(arguments.size()), arguments.data(), options),
            std::nullopt)
            << file;
        EXPECT_LT(job.from, job.until) << file;
      }
    }
  }
}

TEST(ScenarioFiles, AreAtLeastAHundredAndAThirdOfThemNameNobody) {
  size_t all = 0, quiet = 0;
  for (const std::string& file : ScenarioFiles(kDirectory)) {
    ++all;
    quiet += ReadScenario(file, 1).expected.empty() ? 1 : 0;
  }
  EXPECT_GE(all, 100u);
  EXPECT_GE(3 * quiet, all);
}

TEST(ScenarioFiles, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const std::string& file : ScenarioFiles(kDirectory)) {
    EXPECT_TRUE(names.insert(ReadScenario(file, 1).name).second) << file;
  }
  EXPECT_FALSE(names.empty());
}

TEST(ScenarioFiles, ChooseOtherVictimsForOtherSeeds) {
  std::set<int> ranks;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Scenario scenario =
        ReadScenario(std::string(kDirectory) + "/slow-rank/two-slow-ranks.json", seed);
    ASSERT_EQ(scenario.expected.size(), 2u);
    EXPECT_NE(scenario.expected[0].rank / 8, scenario.expected[1].rank / 8);
    EXPECT_LT(scenario.expected[1].rank, 32);
    ranks.insert(scenario.expected[0].rank);
  }
  EXPECT_GE(ranks.size(), 3u);
}

TEST(ScenarioFiles, GiveAJobWithANameToKubernetes) {
  const Scenario scenario =
      ReadScenario(std::string(kDirectory) + "/two-jobs/slow-rank-and-killed-rank.json", 1);
  ASSERT_EQ(scenario.jobs.size(), 2u);
  for (const Job& job : scenario.jobs) {
    EXPECT_THAT(job.options, testing::Contains("NCCL_EXPORTER_JOB=" + job.name));
    EXPECT_THAT(job.options, testing::Contains("POD_NAMESPACE=research"));
  }
  EXPECT_NE(scenario.jobs[0].name, scenario.jobs[1].name);
}

TEST(Scenario, RefusesWhatItDoesNotKnow) {
  const std::string path = testing::TempDir() + "/unknown.json";
  std::ofstream(path) << R"({"says": "x", "layuot": "dp"})";
  EXPECT_THROW(ReadScenario(path, 1), std::runtime_error);
  std::ofstream(path) << R"({"says": "x", "tolerate": [{"alert": "hang", "from": 0}]})";
  EXPECT_THROW(ReadScenario(path, 1), std::runtime_error);
  std::ofstream(path) << R"({"says": "x", "actions": [{"at": 1, "do": "dance"}]})";
  EXPECT_THROW(ReadScenario(path, 1), std::runtime_error);
}

}  // namespace
}  // namespace nccl_exporter::detection
