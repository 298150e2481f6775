// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> NamesOf(const std::vector<ReportChange>& changes) {
  std::vector<std::string> names;
  for (const ReportChange& change : changes) names.push_back(change.name);
  return names;
}

// A job whose measures vary from part to part, by `noise` of each.
Report Played(uint32_t seed, double noise, double slower = 1, size_t parts = 16) {
  Report report{.source = "Prometheus", .job = {}};
  report.step = "step";
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto add = [&](const std::string& name, double seconds) {
    ReportMeasure measure{.name = name, .seconds = {}};
    for (size_t i = 0; i < parts; ++i)
      measure.seconds.push_back(seconds * (1 + noise * normal(random)));
    report.measures.push_back(std::move(measure));
  };
  add("step", 0.5 + 0.1 * (slower - 1));
  add("transfer in AllReduce of dp", 0.08 * slower);
  add("waiting in AllReduce of dp", 0.02);
  add("transfer in AllGather of tp", 0.1);
  return report;
}

TEST(ReportDiffTest, FindsACollectiveThatIsTenPercentSlowerAndNothingElse) {
  for (uint32_t seed = 0; seed < 20; ++seed)
    EXPECT_THAT(NamesOf(ChangesOf(Played(2 * seed, 0.01), Played(2 * seed + 1, 0.01, 1.1))),
                ElementsAre("transfer in AllReduce of dp"));
}

TEST(ReportDiffTest, EqualRunsDifferByNothing) {
  for (const double noise : {0.0, 0.01, 0.05, 0.2}) {
    for (uint32_t seed = 0; seed < 20; ++seed)
      EXPECT_THAT(ChangesOf(Played(2 * seed, noise), Played(2 * seed + 1, noise)), IsEmpty())
          << noise;
  }
}

TEST(ReportDiffTest, APauseIsOnePartOnly) {
  Report paused = Played(1, 0.01);
  for (ReportMeasure& measure : paused.measures) measure.seconds[3] *= 20;
  EXPECT_THAT(ChangesOf(Played(0, 0.01), paused), IsEmpty());
}

TEST(ReportDiffTest, TheLargestChangeComesFirstInEitherDirection) {
  Report after = Played(1, 0, 2);
  after.measures.back().seconds.assign(16, 0.05);
  after.measures.push_back({"transfer in Broadcast of ep", std::vector<double>(16, 0.01)});
  const Report before = Played(0, 0);
  EXPECT_THAT(NamesOf(ChangesOf(before, after)),
              ElementsAre("step", "transfer in AllReduce of dp", "transfer in AllGather of tp",
                          "transfer in Broadcast of ep"));
  const std::string text = DiffText(before, after, 0);
  EXPECT_THAT(text, HasSubstr("+100.00 ms  500.00 ms  600.00 ms   +20.0 %  step\n"));
  EXPECT_THAT(text, HasSubstr("-50.00 ms  100.00 ms   50.00 ms   -50.0 %  transfer in AllG"));
  EXPECT_THAT(text, HasSubstr("+10.00 ms     0.0 us   10.00 ms            transfer in Broad"));
}

// Sums of a life have no parts, so that only larger changes are known.
TEST(ReportDiffTest, SumsShowLargerChangesOnly) {
  EXPECT_THAT(NamesOf(ChangesOf(Played(0, 0, 1, 1), Played(1, 0, 1.1, 1))),
              ElementsAre("transfer in AllReduce of dp"));
  EXPECT_THAT(ChangesOf(Played(0, 0, 1, 1), Played(1, 0, 1.04, 1)), IsEmpty());
}

TEST(ReportDiffTest, TextIsEmptyWhereNothingChanged) {
  EXPECT_EQ(DiffText(Played(0, 0), Played(1, 0), 80), "");
}

TEST(ReportDiffTest, JsonHasSecondsPerStep) {
  const auto json = nlohmann::json::parse(DiffJson(Played(0, 0), Played(1, 0, 1.1)));
  EXPECT_EQ(json["step"], "step");
  ASSERT_EQ(json["changes"].size(), 1u);
  EXPECT_NEAR(json["changes"][0]["after"].get<double>(), 0.088, 1e-9);
}

// Regression: what the first run did not measure was all new in the second one.
TEST(ReportDiffTest, OfARunWithoutGpuTimesStepsAloneAreCompared) {
  Report untimed = Played(1, 0.01);
  untimed.measures.resize(1);
  EXPECT_THAT(ChangesOf(untimed, Played(2, 0.01)), IsEmpty());
  EXPECT_EQ(DiffText(untimed, Played(2, 0.01), 0),
            "Steps alone are compared: the first has no GPU times.\n");
  EXPECT_EQ(nlohmann::json::parse(DiffJson(Played(2, 0.01), untimed))["steps_alone"], true);
  for (double& seconds : untimed.measures[0].seconds) seconds *= 2;
  EXPECT_THAT(NamesOf(ChangesOf(untimed, Played(2, 0.01))), ElementsAre("step"));
}

TEST(ReportDiffTest, WhatCannotBeComparedIsRefused) {
  const auto fault = [](const Report& before, const Report& after) {
    try {
      ChangesOf(before, after);
      return std::string();
    } catch (const std::runtime_error& wrong) {
      return std::string(wrong.what());
    }
  };
  EXPECT_THAT(fault({.source = "", .job = {}}, Played(0, 0)), HasSubstr("has too few timed steps"));
  Report other = Played(0, 0);
  other.step = "AllReduce of dp\x1b";
  EXPECT_EQ(fault(Played(0, 0), other),
            "steps are not comparable: one has 'step', the other 'AllReduce of dp?'");
}

}  // namespace
}  // namespace nccl_exporter::exporter
