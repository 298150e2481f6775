// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/losses/lost_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/node_judge.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kSecondNs = 1000000000;

// One process of job 42, with 100 operations a step.
class LostOperationsTest : public testing::Test {
 protected:
  LostOperationsTest() {
    node_.taken_realtime_ns = 1700000000 * kSecondNs;
    node_.processes.push_back(EmptyProcess(10));
    node_.processes.front().identity = {{"SLURM_JOB_ID", "42"}};
    node_.processes.front().communicators.push_back(EmptyCommunicator(7, 0));
  }

  void Run(int seconds, Loss cause, uint64_t events_per_step) {
    for (; seconds > 0; seconds -= 5) {
      for (int i = 0; i < 100; ++i)
        AddOperation(node_.processes.front().communicators.front(), Function::kAllReduce, 64, 0);
      node_.processes.front().losses[static_cast<size_t>(cause)] += events_per_step;
      node_.taken_realtime_ns += 5 * kSecondNs;
      judge_.Record(BookOf(node_), node_.taken_realtime_ns);
    }
  }
  std::vector<Finding> Findings() const {
    std::vector<Finding> findings = judge_.Judge(node_).findings;
    std::erase_if(findings, [](const Finding& finding) {
      return finding.kind != FindingKind::kOperationsNotFollowed;
    });
    return findings;
  }

  collector::NodeSnapshot node_;
  NodeJudge judge_;
};

TEST_F(LostOperationsTest, AreAFindingWhereMoreThanOneInAHundredIsLost) {
  Run(305, Loss::kInFlightFull, 2);
  ASSERT_THAT(Findings(), SizeIs(1));
  const Finding finding = Findings().front();
  EXPECT_EQ(finding.kind, FindingKind::kOperationsNotFollowed);
  EXPECT_EQ(finding.severity, Severity::kInfo);
  EXPECT_EQ(finding.job_name, "42");
  EXPECT_EQ(finding.headline,
            "Job 42 loses track of operations since 22:13:30 UTC: 120 of 6000 operations are "
            "counted, but not followed.");
  EXPECT_THAT(finding.evidence, testing::Contains(testing::Pair(
                                    "in_flight_full", testing::HasSubstr("120: operation not"))));
  EXPECT_EQ(finding.runbook, "NCCLExporterEventsDropped");
}

TEST_F(LostOperationsTest, AreNoFindingWhereFewAreLost) {
  Run(305, Loss::kInFlightFull, 1);
  EXPECT_THAT(Findings(), IsEmpty());
}

TEST_F(LostOperationsTest, AreNoFindingBeforeFiveMinutes) {
  Run(290, Loss::kInFlightFull, 50);
  EXPECT_THAT(Findings(), IsEmpty());
}

TEST_F(LostOperationsTest, AreNoFindingAfterTheLossesEnded) {
  Run(305, Loss::kOperationAbandoned, 50);
  EXPECT_THAT(Findings(), SizeIs(1));
  Run(300, Loss::kOperationAbandoned, 0);
  EXPECT_THAT(Findings(), IsEmpty());
}

// Regression: communicators were counted as operations, and most often were too few to be found.
TEST_F(LostOperationsTest, AreThoseOfCommunicatorsWithoutASlot) {
  Run(60, Loss::kInFlightFull, 0);
  Run(5, Loss::kNoFreeCommunicatorSlot, 44);
  const int64_t first_ns = node_.taken_realtime_ns;
  Run(600, Loss::kNoFreeCommunicatorSlot, 0);
  ASSERT_THAT(Findings(), SizeIs(1));
  const Finding finding = Findings().front();
  EXPECT_EQ(finding.since_realtime_ns, first_ns);
  EXPECT_THAT(finding.headline,
              testing::EndsWith(": those of 44 communicators without a slot are counted, but not "
                                "followed."));
  EXPECT_THAT(finding.evidence, testing::Contains(testing::Pair(
                                    "no_free_slot", testing::HasSubstr("44: no free slot"))));
  EXPECT_EQ(finding.next, "Raise NCCL_EXPORTER_COMMUNICATORS for the job.");
  node_.processes.front().is_alive = false;
  Run(5, Loss::kInFlightFull, 0);
  EXPECT_THAT(Findings(), IsEmpty());
}

// Regression: the moment moved on with the window of the history.
TEST_F(LostOperationsTest, SinceIsTheFirstLossOfThoseThatGoOn) {
  Run(60, Loss::kInFlightFull, 0);
  const int64_t before_ns = node_.taken_realtime_ns;
  Run(1800, Loss::kInFlightFull, 2);
  ASSERT_THAT(Findings(), SizeIs(1));
  EXPECT_EQ(Findings().front().since_realtime_ns, before_ns + 5 * kSecondNs);
  Run(600, Loss::kInFlightFull, 0);
  const int64_t again_ns = node_.taken_realtime_ns;
  Run(300, Loss::kInFlightFull, 50);
  ASSERT_THAT(Findings(), SizeIs(1));
  EXPECT_EQ(Findings().front().since_realtime_ns, again_ns + 5 * kSecondNs) << "trouble anew";
}

// The tile "Given up 19.2 k" of the operator trial (A4): a communicator that is untimed by design.
TEST_F(LostOperationsTest, AreNoFindingWhereTheyAreLostByDesign) {
  for (const Loss cause : {Loss::kCommunicatorDrifting, Loss::kDrift, Loss::kIncompleteAtFinalize,
                           Loss::kForeignProcess, Loss::kUnproven}) {
    Run(305, cause, 50);
    EXPECT_THAT(Findings(), IsEmpty()) << TraitsOf(cause).reason;
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
