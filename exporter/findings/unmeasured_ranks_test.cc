// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/node_judge.h"
#include "exporter/findings/node_troubles.h"
#include "exporter/findings/testing/hand_made_node.h"

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::Field;
using testing::IsEmpty;

// A communicator of 4 ranks on this node, of which rank 3 is not seen.
HandMadeNode WithoutRank3() {
  HandMadeNode job(3);
  job.AddCommunicator("tp", {0, 1, 2}, 4);
  for (size_t rank = 0; rank < 3; ++rank) job.Of(rank, "tp").nodes = 1;
  return job;
}
std::vector<Finding> FindingsOn(const HandMadeNode& job) {
  return NodeJudge().Judge(job.node).findings;
}

// Regression: the page was green, with "3 of 4 ranks" in grey.
TEST(UnmeasuredRanksTest, ARankThatMustBeHereAndIsNotSeenIsAFinding) {
  const std::vector<Finding> findings = FindingsOn(WithoutRank3());
  ASSERT_EQ(findings.size(), 1u);
  const Finding& finding = findings.front();
  EXPECT_EQ(finding.kind, FindingKind::kRanksUnmeasured);
  EXPECT_EQ(finding.severity, Severity::kInfo);
  EXPECT_EQ(finding.headline,
            "1 of 4 ranks of tp of job 4712 is not measured: this node has all of them, and no "
            "segment of this one.");
  ASSERT_EQ(finding.culprits.size(), 1u);
  EXPECT_EQ(finding.culprits[0].rank, 3u);
  EXPECT_EQ(finding.culprits[0].standing, Standing::kMissing);
}

TEST(UnmeasuredRanksTest, RanksThatMayBeOnOtherNodesAreNotMissing) {
  HandMadeNode job = WithoutRank3();
  for (size_t rank = 0; rank < 3; ++rank) job.Of(rank, "tp").nodes = 2;
  EXPECT_THAT(FindingsOn(job), IsEmpty());
  for (size_t rank = 0; rank < 3; ++rank) job.Of(rank, "tp").nodes = 0;
  EXPECT_THAT(FindingsOn(job), IsEmpty()) << "an old NCCL does not say on how many nodes they are";
}

// The ranks of a job make their communicator one after the other.
TEST(UnmeasuredRanksTest, ACommunicatorThatIsJustMadeLacksNobody) {
  HandMadeNode job = WithoutRank3();
  job.Of(1, "tp").created_realtime_ns = kNow - 10 * kSecond;
  EXPECT_THAT(FindingsOn(job), IsEmpty());
}

TEST(UnmeasuredRanksTest, WhereThereWasNoRoomNobodyIsMissing) {
  HandMadeNode job = WithoutRank3();
  job.node.processes[0].losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)] = 1;
  EXPECT_THAT(FindingsOn(job), IsEmpty());
  job.node.processes[0].is_alive = false;
  EXPECT_THAT(FindingsOn(job), Contains(Field(&Finding::kind, FindingKind::kRanksUnmeasured)));
  job = WithoutRank3();
  collector::SegmentTrouble full;
  full.error = collector::SegmentError::kTooManySegments;
  full.uid = job.node.processes[0].uid;
  full.present = 1;
  job.node.segment_troubles.push_back(full);
  for (const Finding& finding : FindingsOn(job))
    EXPECT_EQ(finding.kind, FindingKind::kSegmentsUnusable);
}

// At the end of a job its ranks finalize one after the other.
TEST(UnmeasuredRanksTest, ARankThatHasFinalizedIsNotMissing) {
  HandMadeNode job(4);
  job.AddCommunicator("tp", {0, 1, 2, 3});
  job.Of(3, "tp").is_closed = true;
  EXPECT_THAT(FindingsOn(job), IsEmpty());
}

// The hang names the rank already.
TEST(UnmeasuredRanksTest, AHangExplainsItsOwnCommunicator) {
  HandMadeNode job = WithoutRank3();
  job.Start({0, 1, 2}, "tp", 150);
  const std::vector<Finding> findings = FindingsOn(job);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().kind, FindingKind::kHangElsewhere);
}

TEST(UnmeasuredRanksTest, ANumberOfRanksWithoutEndIsNoLoopWithoutEnd) {
  HandMadeNode job(2);
  job.AddCommunicator("tp", {0, 1}, UINT64_MAX);
  for (size_t rank = 0; rank < 2; ++rank) job.Of(rank, "tp").nodes = 1;
  const std::vector<Finding> findings = FindingsOn(job);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().culprits.size(), kMostFoundRanks);
  EXPECT_EQ(findings.front().more_culprits, UINT64_MAX - 2 - kMostFoundRanks);
}

}  // namespace
}  // namespace nccl_exporter::exporter
