// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/thresholds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace nccl_exporter::exporter {
namespace {

constexpr char kShipped[] = "deploy/prometheus/thresholds.json";

std::string FileWith(const std::string& text) {
  const std::string path = testing::TempDir() + "/thresholds.json";
  std::ofstream(path) << text;
  return path;
}

std::string FaultOf(const std::string& text) {
  const std::string path = FileWith(text);
  try {
    ReadThresholds(path);
  } catch (const std::runtime_error& error) {
    const std::string fault = error.what();
    return fault.starts_with(path + ": ") ? fault.substr(path.size() + 2) : fault;
  }
  return "";
}

TEST(ThresholdsTest, TheShippedFileIsWhatTheDaemonWasBuiltWith) {
  const Thresholds built, read = ReadThresholds(kShipped);
  EXPECT_EQ(read.interval, built.interval);
  EXPECT_EQ(read.hang_threshold, built.hang_threshold);
  EXPECT_EQ(read.critical_threshold, built.critical_threshold);
  EXPECT_EQ(read.late_for(), built.late_for());
  EXPECT_EQ(read.straggler_threshold, built.straggler_threshold);
  EXPECT_EQ(read.lost_share, built.lost_share);
}

TEST(ThresholdsTest, AFileChangesWhatItNames) {
  const Thresholds read = ReadThresholds(FileWith(
      R"({"hang-threshold": "10m", "straggler-threshold": 0.05, "halted-evaluations": 8})"));
  EXPECT_EQ(Seconds(read.hang_threshold), 600);
  EXPECT_EQ(Seconds(read.wait()), 150);
  EXPECT_EQ(Seconds(read.went_on()), 300);
  EXPECT_EQ(read.straggler_threshold, 0.05);
  EXPECT_EQ(read.halted_evaluations, 8);
  EXPECT_EQ(read.critical_threshold, Thresholds().critical_threshold);
}

// Each key can be changed, and takes a value of its kind alone.
TEST(ThresholdsTest, EveryShippedKeyIsKnownAndChecked) {
  const auto shipped = nlohmann::json::parse(std::ifstream(kShipped));
  for (const auto& [key, value] : shipped.items()) {
    EXPECT_EQ(FaultOf(nlohmann::json{{key, value}}.dump()), "") << key;
    EXPECT_THAT(FaultOf(nlohmann::json{{key, nlohmann::json::array()}}.dump()),
                testing::HasSubstr("\"" + key + "\" is not a"));
  }
}

TEST(ThresholdsTest, AWrongFileIsRefusedInOneLine) {
  EXPECT_EQ(FaultOf("{"), "is no JSON (byte 2)");
  EXPECT_EQ(FaultOf("[]"), "is no JSON object");
  EXPECT_EQ(FaultOf(R"({"hang": "2m"})"), "\"hang\" is no threshold");
  EXPECT_EQ(FaultOf(R"({"hang-threshold": "2 minutes"})"),
            "\"hang-threshold\" is not a duration from 1ms to 24h, such as \"90s\"");
  EXPECT_EQ(FaultOf(R"({"hang-threshold": "25h"})"),
            "\"hang-threshold\" is not a duration from 1ms to 24h, such as \"90s\"");
  EXPECT_EQ(FaultOf(R"({"straggler-threshold": 3})"),
            "\"straggler-threshold\" is not a number between 0 and 1");
  EXPECT_EQ(FaultOf(R"({"halted-evaluations": 1})"),
            "\"halted-evaluations\" is not a whole number from 2 to 60");
  EXPECT_EQ(FaultOf(R"({"history": "30m"})"), "\"history\" is more than 63 intervals");
  EXPECT_EQ(FaultOf(R"({"window": "6m"})"), "\"window\" is more than 5m");
  EXPECT_THROW(ReadThresholds("/nowhere.json"), std::runtime_error);
}

TEST(ThresholdsTest, AllDurationsAreScaled) {
  const Thresholds scaled = Thresholds().Scaled(15);
  EXPECT_EQ(Seconds(scaled.hang_threshold), 8);
  EXPECT_EQ(Seconds(scaled.critical_threshold), 40);
  EXPECT_EQ(Seconds(scaled.window), 3);
  EXPECT_EQ(Seconds(scaled.late_for()), 12);
  EXPECT_EQ(Seconds(scaled.history), 40);
  EXPECT_EQ(Seconds(scaled.warm_up), 20);
  EXPECT_EQ(Seconds(scaled.longest_step), 2);
  EXPECT_EQ(Seconds(scaled.interval), 1);
  EXPECT_NEAR(Seconds(scaled.step), 1.0 / 3, 1e-6);
}

}  // namespace
}  // namespace nccl_exporter::exporter
