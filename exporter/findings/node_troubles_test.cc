// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_troubles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kSecondNs = 1000000000;

TEST(UnusableSegmentsTest, NamesFileOwnerAndError) {
  collector::NodeSnapshot node;
  node.segment_troubles = {{.error = collector::SegmentError::kDirectoryUnreadable,
                            .uid = 1001,
                            .count = 3,
                            .file = "/run/nccl-exporter/jobs\x1b[31m",
                            .file_uid = 1001,
                            .detail = "Permission denied",
                            .realtime_ns = 1700000000 * kSecondNs,
                            .present = 2}};
  const std::vector<Finding> findings = UnusableSegments(node);
  ASSERT_THAT(findings, SizeIs(1));
  const Finding& finding = findings.front();
  EXPECT_EQ(finding.kind, FindingKind::kSegmentsUnusable);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.uid, 1001u);
  EXPECT_EQ(finding.headline,
            "/run/nccl-exporter/jobs?[31m of user 1001 cannot be used since 22:13:20 UTC: the "
            "directory could not be listed (Permission denied).");
  EXPECT_THAT(finding.evidence, Contains(Pair("reason", "directory_unreadable")));
  EXPECT_THAT(finding.evidence, Contains(Pair(HasSubstr("now"), "2")));
  EXPECT_EQ(finding.runbook, "NCCLExporterSegmentsUnusable");
}

TEST(UnusableSegmentsTest, IsSilentAboutFaultsThatAreOver) {
  collector::NodeSnapshot node;
  node.segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                            .uid = 1001,
                            .count = 3,
                            .file = "/run/nccl-exporter/junk.seg",
                            .file_uid = 1001,
                            .detail = {},
                            .realtime_ns = 1,
                            .present = 0}};
  EXPECT_THAT(UnusableSegments(node), IsEmpty());
}

TEST(UnusableSegmentsTest, NamesWholePaths) {
  collector::NodeSnapshot node;
  const std::string file = "/run/nccl-exporter/" + std::string(100, 'x') + ".seg";
  node.segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                            .uid = {},
                            .count = 1,
                            .file = file,
                            .file_uid = 7,
                            .detail = {},
                            .realtime_ns = 1,
                            .present = 1}};
  ASSERT_THAT(UnusableSegments(node), SizeIs(1));
  EXPECT_THAT(UnusableSegments(node).front().headline, HasSubstr(file + " of user 7 cannot"));
}

// One process of job 42, with 100 operations a step.
class UnfollowedOperationsTest : public testing::Test {
 protected:
  UnfollowedOperationsTest() {
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
      history_.Record(node_, node_.taken_realtime_ns);
    }
  }
  std::vector<Finding> Findings() const { return UnfollowedOperations(node_, history_, {}); }

  collector::NodeSnapshot node_;
  NodeHistory history_;
};

TEST_F(UnfollowedOperationsTest, AreAFindingWhereMoreThanOneInAHundredIsLost) {
  Run(305, Loss::kInFlightFull, 2);
  ASSERT_THAT(Findings(), SizeIs(1));
  const Finding finding = Findings().front();
  EXPECT_EQ(finding.kind, FindingKind::kOperationsNotFollowed);
  EXPECT_EQ(finding.severity, Severity::kInfo);
  EXPECT_EQ(finding.headline,
            "Job 42 loses track of operations since 22:13:30 UTC: 120 of 6000 operations are "
            "counted, but not followed.");
  EXPECT_THAT(finding.evidence, Contains(Pair("in_flight_full", HasSubstr("120: operation not"))));
  EXPECT_EQ(finding.runbook, "NCCLExporterEventsDropped");
}

TEST_F(UnfollowedOperationsTest, AreNoFindingWhereFewAreLost) {
  Run(305, Loss::kInFlightFull, 1);
  EXPECT_THAT(Findings(), IsEmpty());
}

TEST_F(UnfollowedOperationsTest, AreNoFindingBeforeFiveMinutes) {
  Run(290, Loss::kInFlightFull, 50);
  EXPECT_THAT(Findings(), IsEmpty());
}

TEST_F(UnfollowedOperationsTest, AreNoFindingAfterTheLossesEnded) {
  Run(305, Loss::kOperationAbandoned, 50);
  EXPECT_THAT(Findings(), SizeIs(1));
  Run(300, Loss::kOperationAbandoned, 0);
  EXPECT_THAT(Findings(), IsEmpty());
}

// The tile "Given up 19.2 k" of the operator trial (A4): a communicator that is untimed by design.
TEST_F(UnfollowedOperationsTest, AreNoFindingWhereTheyAreLostByDesign) {
  for (const Loss cause : {Loss::kCommunicatorDrifting, Loss::kDrift, Loss::kIncompleteAtFinalize,
                           Loss::kForeignProcess, Loss::kUnproven}) {
    Run(305, cause, 50);
    EXPECT_THAT(Findings(), IsEmpty()) << TraitsOf(cause).reason;
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
