// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/testing/hand_made_node.h"

namespace nccl_exporter::exporter {
namespace {

collector::SegmentTrouble TroubleOf(uint64_t uid, int64_t realtime_ns) {
  collector::SegmentTrouble trouble;
  trouble.error = collector::SegmentError::kBadMagic;
  trouble.uid = trouble.file_uid = uid;
  trouble.present = 1;
  trouble.realtime_ns = realtime_ns;
  return trouble;
}

TEST(NodeJudgeTest, AUserWithManyFindingsDoesNotHideThoseOfAnother) {
  collector::NodeSnapshot node;
  for (int64_t i = 1; i <= 100; ++i) node.segment_troubles.push_back(TroubleOf(1001, i));
  node.segment_troubles.push_back(TroubleOf(1002, 1000));
  const Judgement judgement = NodeJudge().Judge(node);
  ASSERT_EQ(judgement.findings.size(), kMostFindingsPerUser + 1);
  EXPECT_EQ(judgement.findings[0].uid, 1001u);
  EXPECT_EQ(judgement.findings[1].uid, 1002u);
  EXPECT_EQ(judgement.left_out, 100 - kMostFindingsPerUser);
}

// Regression: of two jobs that hang, the one whose culprit is on another node came first.
TEST(NodeJudgeTest, AHangWithItsCulpritComesBeforeOneWhoseCulpritIsElsewhere) {
  HandMadeNode jobs(2);
  jobs.AddCommunicator("here", {0, 1});
  jobs.Start(0, "here", 300);
  jobs.AddProcess(0, "4713");
  jobs.AddCommunicator("across", {2}, 2);
  jobs.Start(2, "across", 400);
  const std::vector<Finding> findings = NodeJudge().Judge(jobs.node).findings;
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].severity, findings[1].severity);
  EXPECT_EQ(findings[0].kind, FindingKind::kHangCulprit);
  EXPECT_EQ(findings[1].kind, FindingKind::kHangElsewhere);
}

// Regresses: the end of a process was hidden by a hang of another one with its pid.
TEST(NodeJudgeTest, AHangExplainsNoEndOfAProcessWithThePidOfItsCulprit) {
  for (const bool is_same_job : {false, true}) {
    HandMadeNode jobs(2);
    jobs.AddCommunicator("here", {0, 1});
    jobs.Start(0, "here", 300);
    jobs.AddProcess(2, is_same_job ? "4712" : "4713");
    jobs.AddProcess(3, is_same_job ? "4712" : "4713");
    jobs.AddCommunicator("there", {2, 3});
    collector::ProcessSnapshot& ended = jobs.node.processes[2];
    ended.is_alive = false;
    ended.pid = jobs.node.processes[1].pid;
    if (is_same_job) ended.identity.emplace_back("POD_NAME", "container-b");
    const std::vector<Finding> findings = NodeJudge().Judge(jobs.node).findings;
    EXPECT_THAT(findings,
                testing::Contains(testing::Field(&Finding::kind, FindingKind::kProcessKilled)))
        << is_same_job;
  }
}

TEST(NodeJudgeTest, AFindingHasTheSitesLabelsOfItsJob) {
  HandMadeNode jobs(2);
  jobs.AddCommunicator("here", {0, 1});
  jobs.Start(0, "here", 300);
  jobs.AddProcess(0, "4713");
  for (collector::ProcessSnapshot& process : jobs.node.processes)
    process.site_labels = {{"team", process.JobName() == "4713" ? "vision" : "speech"}};
  const auto json = FindingsJson(NodeJudge().Judge(jobs.node));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["labels"], nlohmann::ordered_json({{"team", "speech"}}));
}

// Regression: a finding held as many ranks as a user forged.
TEST(NodeJudgeTest, AFindingHoldsTheFirstRanksAndCountsAll) {
  constexpr size_t kRanks = 200, kListed = 64;
  HandMadeNode job(kRanks);
  std::vector<size_t> all;
  for (size_t rank = 0; rank < kRanks; ++rank) all.push_back(rank);
  job.AddCommunicator("world", all);
  for (size_t rank = 100; rank < kRanks; ++rank) job.Start(rank, "world", 300);
  const Judgement judgement = NodeJudge().Judge(job.node);
  ASSERT_EQ(judgement.findings.size(), 1u);
  const Finding& finding = judgement.findings.front();
  EXPECT_EQ(finding.waiting.size(), kListed);
  EXPECT_EQ(finding.culprits.size(), kListed);
  EXPECT_THAT(finding.headline, testing::HasSubstr(": 100 ranks wait for global rank 0 (GPU 0, "
                                                   "pid 1000, gpu-node-7) and 99 more, "));
  const auto json = FindingsJson(judgement)[0];
  EXPECT_EQ(json["waiting_count"], 100);
  EXPECT_EQ(json["culprits_count"], 100);
}

// Regression: `top`, which has a snapshot each second, remembered two minutes and found no losses.
TEST(NodeJudgeTest, ASnapshotEachSecondGivesTheSameFindingsAsOneEachStep) {
  collector::NodeSnapshot node;
  node.taken_realtime_ns = kNow;
  node.processes.push_back(EmptyProcess(10));
  node.processes.front().communicators.push_back(EmptyCommunicator(7, 0));
  NodeJudge judge;
  for (int second = 0; second < 320; ++second) {
    AddOperation(node.processes.front().communicators.front(), Function::kAllReduce, 64, 0);
    ++node.processes.front().losses[static_cast<size_t>(Loss::kInFlightFull)];
    node.taken_realtime_ns += kSecond;
    judge.Record(BookOf(node), node.taken_realtime_ns);
  }
  const Judgement judgement = judge.Judge(node);
  ASSERT_EQ(judgement.findings.size(), 1u);
  EXPECT_EQ(judgement.findings.front().kind, FindingKind::kOperationsNotFollowed);
}

}  // namespace
}  // namespace nccl_exporter::exporter
