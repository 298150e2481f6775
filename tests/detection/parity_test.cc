// SPDX-License-Identifier: Apache-2.0
// The shipped rules and the judge on a job that is made by hand: they name the same rank in the
// same evaluations.
#include "tests/detection/parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <utility>

#include "collector/testing/scratch_directory.h"
#include "exporter/findings/testing/hand_made_node.h"
#include "exporter/findings/testing/late_job.h"

namespace nccl_exporter::detection {
namespace {

using exporter::LateJob;

constexpr const char* kRules = "deploy/prometheus/nccl-exporter.rules.yml";
constexpr uint64_t kTp = 1;

// Eight ranks, of which rank 5 costs the others 6 % of the time from 420 s on, until 660 s.
void Play(ParityRecord& record) {
  LateJob job(8);
  job.Make(kTp, "tp", {0, 1, 2, 3, 4, 5, 6, 7});
  for (int seconds = 0; seconds < 960; seconds += LateJob::kStepSeconds) {
    record.Take(std::make_shared<collector::NodeSnapshot>(job.node()),
                seconds / LateJob::kStepSeconds);
    const bool is_late = seconds >= 420 && seconds < 660;
    for (size_t i = 0; i < 8; ++i) job.Busy(i, kTp, is_late && i == 5 ? 0.14 : 0.2);
    job.node().taken_realtime_ns += LateJob::kStepSeconds * LateJob::kSecondNs;
  }
}

class ParityTest : public testing::Test {
 protected:
  void SetUp() override {
    if (access("/usr/bin/promtool", X_OK) != 0) GTEST_SKIP() << "promtool is not installed";
    Play(record_);
  }

  const collector::ScratchDirectory scratch_;
  ParityRecord record_{1};
};

TEST_F(ParityTest, RulesAndJudgeNameTheSameRankInTheSameEvaluations) {
  const ParityResult result = record_.Compare(std::filesystem::absolute(kRules), scratch_.path());
  EXPECT_EQ(result.evaluations, 64u);
  EXPECT_THAT(result.differences, testing::IsEmpty());
}

// Four stages, of which one becomes slower.
TEST_F(ParityTest, RulesAndJudgeCompareAStageWithItsPast) {
  constexpr double kUsual[] = {0.5, 0.25, 0.1, 0.2};
  ParityRecord record(1);
  LateJob job(4);
  job.Make(kTp, "pp", {0, 1, 2, 3});
  for (int seconds = 0; seconds < 1200; seconds += LateJob::kStepSeconds) {
    record.Take(std::make_shared<collector::NodeSnapshot>(job.node()),
                seconds / LateJob::kStepSeconds);
    const bool is_late = seconds >= 600 && seconds < 900;
    for (size_t i = 0; i < 4; ++i) {
      const uint64_t operations = i == 0 || i == 3 ? 50 : 100;
      const double more = !is_late ? 0 : i == 1 ? -0.05 : 0.1;
      job.Busy(i, kTp, kUsual[i] + more, Function::kSend, operations, operations);
    }
    job.node().taken_realtime_ns += LateJob::kStepSeconds * LateJob::kSecondNs;
  }
  const ParityResult result = record.Compare(std::filesystem::absolute(kRules), scratch_.path());
  EXPECT_THAT(result.differences, testing::IsEmpty());
  EXPECT_THAT(record.EverNamed(NamedFor::kLate),
              testing::Contains(std::pair<std::string, std::string>("5001", "1")));
}

// A copy whose CLOCK_MONOTONIC is that of this machine, by which ParityRecord dates the books.
std::shared_ptr<collector::NodeSnapshot> WithClockOfThisMachine(collector::NodeSnapshot node,
                                                                int64_t begin_ns) {
  for (collector::ProcessSnapshot& process : node.processes) {
    for (collector::CommunicatorSnapshot& communicator : process.communicators)
      communicator.last_progress_monotonic_ns =
          communicator.last_progress_realtime_ns - exporter::kNow + begin_ns;
  }
  return std::make_shared<collector::NodeSnapshot>(std::move(node));
}

// Regression: the judge named the culprit of a hang one evaluation before the rules. Rank 3 stops
// to call, at each of the steps of an evaluation.
TEST_F(ParityTest, RulesAndJudgeNameTheCulpritOfAHangInTheSameEvaluations) {
  for (int stops_at = 105; stops_at < 120; stops_at += LateJob::kStepSeconds) {
    ParityRecord record(1);
    exporter::HandMadeNode job(4);
    job.AddCommunicator("tp", {0, 1, 2, 3});
    const int64_t begin_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    for (int seconds = 0; seconds < 360; seconds += LateJob::kStepSeconds) {
      for (size_t i = 0; seconds < stops_at && i < 4; ++i) job.Complete(i, "tp", 2 - seconds);
      if (seconds == stops_at) job.Start({0, 1, 2}, "tp", 2 - seconds);
      record.Take(WithClockOfThisMachine(job.node, begin_ns), seconds / LateJob::kStepSeconds);
      job.Wait(LateJob::kStepSeconds);
    }
    const ParityResult result = record.Compare(std::filesystem::absolute(kRules), scratch_.path());
    EXPECT_EQ(result.evaluations, 24u);
    EXPECT_THAT(result.differences, testing::IsEmpty()) << stops_at;
    EXPECT_THAT(record.EverNamed(NamedFor::kHang),
                testing::ElementsAre(std::pair<std::string, std::string>("1003", "3")));
  }
}

// All ranks leave a communicator in which an operation stays in flight, as ncclCommRevoke does, and
// make another. Rank 3 does not call in the other: it is late there, and waits in neither.
TEST_F(ParityTest, RulesAndJudgeNameARankThatIsLateInTheCommunicatorMadeAfterAnother) {
  constexpr int kRevoked = 60, kMade = 150, kCalled = 155;
  ParityRecord record(1);
  exporter::HandMadeNode job(4);
  job.AddCommunicator("tp", {0, 1, 2, 3});
  const int64_t begin_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  for (int seconds = 0; seconds < 420; seconds += LateJob::kStepSeconds) {
    for (size_t i = 0; seconds < kRevoked && i < 4; ++i) job.Complete(i, "tp", 2 - seconds);
    if (seconds == kRevoked) job.Start({0, 1, 2, 3}, "tp", 2 - seconds);
    if (seconds == kMade) job.MakeCommunicator("tp2", {0, 1, 2, 3});
    if (seconds == kCalled) job.Start({0, 1, 2}, "tp2", 2 - seconds);
    record.Take(WithClockOfThisMachine(job.node, begin_ns), seconds / LateJob::kStepSeconds);
    job.Wait(LateJob::kStepSeconds);
  }
  const ParityResult result = record.Compare(std::filesystem::absolute(kRules), scratch_.path());
  EXPECT_THAT(result.differences, testing::IsEmpty());
  EXPECT_THAT(record.EverNamed(NamedFor::kHang),
              testing::ElementsAre(std::pair<std::string, std::string>("1003", "3")));
}

TEST_F(ParityTest, OtherRulesDiffer) {
  std::ifstream file(kRules);
  const std::string rules{std::istreambuf_iterator<char>(file), {}};
  const std::string other = scratch_.path() + "/other.rules.yml";
  std::ofstream(other) << std::regex_replace(rules, std::regex(R"(> 0\.03\b)"), "> 0.3");
  const ParityResult result = record_.Compare(other, scratch_.path());
  ASSERT_THAT(result.differences, testing::Not(testing::IsEmpty()));
  EXPECT_THAT(result.differences.front(),
              testing::HasSubstr("late: rules name nobody, the judge names pid 5005 GPU 5"));
}

}  // namespace
}  // namespace nccl_exporter::detection
