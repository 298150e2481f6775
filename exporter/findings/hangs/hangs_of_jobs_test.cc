// SPDX-License-Identifier: Apache-2.0
// Hangs of several communicators and jobs. Cases have the names of those of the rules
// (deploy/prometheus/tests/hang_cases.py) where they are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/hangs.h"
#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/testing/hand_made_node.h"
#include "exporter/findings/testing/hang_expectations.h"

namespace nccl_exporter::exporter {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// tp on the node, dp and pp to other nodes: rank 3 misses a call of tp, and everybody else is
// blocked somewhere.
class MixedHangTest : public testing::Test {
 protected:
  MixedHangTest() {
    job_.AddCommunicator("tp", {0, 1, 2, 3});
    for (size_t rank = 0; rank < 4; ++rank)
      job_.AddCommunicator("dp" + std::to_string(rank), {rank}, 4);
    job_.AddCommunicator("pp", {0, 1, 2, 3}, 16);
  }
  HandMadeNode job_{4};
};

TEST_F(MixedHangTest, OfTheRanksBehindOnlyTheOneThatWaitsForNobodyIsNamed) {
  job_.Start({0, 1}, "tp", 150);
  job_.Start(2, "pp", 149, Function::kRecv, 12);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(Culprits(findings), ElementsAre("3"));
  EXPECT_EQ(findings[0].communicator_name, "tp");
  EXPECT_EQ(findings[0].cost, "3 of 4 GPUs of this node wait");
  EXPECT_EQ(Evidence(findings[0], "also blocked"), "pp");
}

TEST_F(MixedHangTest, BlockedCommunicatorsAreListedOnce) {
  job_.Start({0, 1, 2}, "tp", 150);
  for (const size_t rank : {0, 1, 2}) job_.Start(rank, "dp" + std::to_string(rank), 149);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(Evidence(findings[0], "also blocked"), "dp0, dp1, dp2");
}

TEST_F(MixedHangTest, NobodyIsNamedIfAllWaitForOtherNodes) {
  // Three wait in dp; rank 1 waits in tp for them.
  job_.Start(1, "tp", 150);
  for (const size_t rank : {0, 2, 3}) job_.Start(rank, "dp" + std::to_string(rank), 151);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kHangElsewhere);
  EXPECT_THAT(findings[0].culprits, IsEmpty());
  EXPECT_THAT(
      findings[0].headline,
      HasSubstr(": all 4 ranks here wait for another node, in AllReduce #101 of dp0; this node is "
                "probably not the cause."))
      << "all that wait, and not only those of one communicator";
  EXPECT_THAT(findings[0].next,
              HasSubstr("nccl-exporter report --job 4712. Without Prometheus, run "
                        "nccl-exporter inflight on the other nodes"));
  EXPECT_EQ(findings[0].cost, "4 of 4 GPUs of this node wait");
  EXPECT_EQ(Evidence(findings[0], "also blocked"), "dp2, dp3, tp");
  EXPECT_EQ(findings[0].runbook, "NCCLCollectiveHang");
}

// A rank that is in nothing may be the cause of what the others wait for.
TEST_F(MixedHangTest, ANodeWithARankThatDoesNotWaitIsNotAcquitted) {
  for (const size_t rank : {0, 1, 2}) job_.Start(rank, "dp" + std::to_string(rank), 151);
  EXPECT_THAT(
      Fresh(job_).at(0).headline,
      HasSubstr("1 rank waits in AllReduce #101 of dp0, and the ranks that it waits for are "
                "on other nodes; 3 of 4 ranks are not on this node."));
}

TEST_F(MixedHangTest, ANameThatAShellWouldReadIsInNoCommand) {
  for (collector::ProcessSnapshot& process : job_.node.processes)
    process.identity = {{"SLURM_JOB_ID", "1;reboot"}};
  for (const size_t rank : {0, 1, 2, 3}) job_.Start(rank, "dp" + std::to_string(rank), 151);
  EXPECT_THAT(Fresh(job_).at(0).next, testing::StartsWith("Run nccl-exporter inflight"));
}

// A minority behind in tp that waits elsewhere looks like a circle of communicators on one node.
TEST_F(MixedHangTest, ARankThatWaitsForAnotherNodeIsNotTakenForTheCauseOfACircle) {
  job_.Start({0, 1, 2}, "tp", 150);
  job_.Start(3, "dp3", 151);
  EXPECT_THAT(Culprits(Fresh(job_)), IsEmpty());
  EXPECT_THAT(Fresh(job_), ElementsAre(IsKind(FindingKind::kHangElsewhere)));
}

TEST_F(MixedHangTest, ARankWhoseWaitForAnotherNodeIsNotSeenIsNotNamed) {
  job_.Start({0, 1, 2}, "tp", 150);
  job_.Start(3, "dp3", 151);
  job_.Of(3, "dp3").completion_is_known = false;
  EXPECT_THAT(Culprits(Fresh(job_)), IsEmpty());
  EXPECT_THAT(Fresh(job_).at(0).headline,
              HasSubstr("3 ranks wait in AllReduce #101 of tp, and global rank 3 (GPU 3, pid 1003, "
                        "gpu-node-7) may wait for ranks on other nodes."));
  job_.node.processes[3].is_stopped = true;
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

TEST_F(MixedHangTest, AHangWithAllRanksInsideIsThatOfTheOldestOperation) {
  job_.Start({0, 1, 2, 3}, "tp", 150);
  for (const size_t rank : {0, 1, 2, 3}) job_.Start(rank, "dp" + std::to_string(rank), 149);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kHangNobodyBehind);
  EXPECT_EQ(findings[0].communicator_name, "tp");
}

TEST_F(MixedHangTest, AnOperationBehindOneThatWaitsForAnotherNodeIsNotTheCause) {
  for (const size_t rank : {0, 1, 2, 3}) job_.Start(rank, "dp" + std::to_string(rank), 150);
  job_.Start({0, 1, 2, 3}, "tp", 149);
  EXPECT_THAT(Fresh(job_), ElementsAre(IsKind(FindingKind::kHangElsewhere)));
}

TEST_F(MixedHangTest, AMissingSendNamesTheRankThatIsInNothing) {
  job_.Start(2, "pp", 150, Function::kRecv, 3);
  const std::vector<Finding> findings = Fresh(job_);
  EXPECT_THAT(Culprits(findings), ElementsAre("3"));
  EXPECT_THAT(findings.at(0).headline, HasSubstr("1 rank waits for global rank 3 (GPU 3, pid 1003, "
                                                 "gpu-node-7), which has no send or receive in "
                                                 "flight."));
  EXPECT_EQ(findings[0].culprits[0].standing, Standing::kNoPartner);
  EXPECT_EQ(findings[0].waiting.at(0).operation, "Recv from rank 3 of pp");
}

// It may have finished them: the weak sign does not count beside a sure one.
TEST_F(MixedHangTest, ARankWithoutASendIsNotNamedBesideOneThatMissesACall) {
  job_.Start(0, "pp", 150, Function::kRecv, 1);
  job_.Start({0, 1, 2}, "tp", 150);
  job_.Of(1, "tp") = job_.Of(0, "tp");
  job_.Of(1, "tp").rank = 1;
  job_.Of(1, "tp").in_flight.clear();
  job_.Of(1, "tp").completed_sequence = job_.Of(1, "tp").started_sequence - 1;
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

TEST_F(MixedHangTest, RanksThatDoNotSendToOthersAreNotMissedByThem) {
  job_.Start(0, "pp", 150, Function::kRecv, 9);
  EXPECT_THAT(Fresh(job_), ElementsAre(AllOf(IsKind(FindingKind::kHangElsewhere),
                                             Field(&Finding::culprits, IsEmpty()))));
}

TEST_F(MixedHangTest, AShortWaitInOneCommunicatorNamesNobodyThoughAnotherHangs) {
  for (const size_t rank : {0, 1, 2}) job_.Start(rank, "dp" + std::to_string(rank), 300);
  HandMadeNode one = job_;
  one.AddCommunicator("metrics", {0, 3});
  EXPECT_THAT(Culprits(Fresh(one)), IsEmpty());
}

TEST(HangOfJobsTest, TwoJobsAreTwoFindingsAndDoNotMix) {
  HandMadeNode jobs(4);
  for (size_t rank = 2; rank < 4; ++rank) jobs.node.processes[rank].identity[0].second = "99";
  jobs.AddCommunicator("dp", {0, 1});
  jobs.AddCommunicator("dp", {2, 3});
  jobs.Start(0, "dp", 150);
  jobs.Start(3, "dp", 40);
  const std::vector<Finding> findings = Fresh(jobs);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].job, "job 4712");
  EXPECT_THAT(findings[0].headline, HasSubstr("hangs since"));
  EXPECT_EQ(findings[0].cost, "1 of 2 GPUs of this node waits");
  EXPECT_EQ(findings[1].job, "job 99");
  EXPECT_THAT(findings[1].headline, HasSubstr("waits since"));
  EXPECT_THAT(Culprits(findings), ElementsAre("1", "2"));
}

TEST(HangOfJobsTest, ACopyOfAnotherUserHidesNothingAndIsNotNamed) {
  HandMadeNode job(2);
  job.AddCommunicator("dp", {0, 1});
  job.Start(0, "dp", 150);
  for (size_t rank = 0; rank < 2; ++rank) {
    collector::ProcessSnapshot copy = job.node.processes[rank];
    copy.uid = 1001;
    copy.file.inode += 1000;
    copy.communicators[0].last_progress_realtime_ns = kNow;
    copy.is_alive = rank != 1;
    job.node.processes.push_back(copy);
  }
  const std::vector<Finding> findings = Fresh(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].uid, 1000u);
  EXPECT_THAT(Culprits(findings), ElementsAre("1"));
}

// A container that restarts in place has the same pid. In the series it hides that the process
// before it has ended.
TEST(HangOfJobsTest, AProcessThatRestartsWithItsPidHidesNoEnd) {
  HandMadeNode job(4);
  job.AddCommunicator("dp", {0, 1, 2, 3});
  job.Start({0, 1, 2, 3}, "dp", 150);
  for (const size_t rank : {3, 0, 1, 2}) {
    job.node.processes[rank].is_alive = false;
    collector::ProcessSnapshot& next = job.AddProcess(rank);
    next.pid = job.node.processes[rank].pid;
    job.StartedAt(kNow - 60 * kSecond, next);
    if (rank == 3) {
      EXPECT_THAT(Culprits(Fresh(job)), ElementsAre("3"));
    }
  }
  job.AddCommunicator("dp of the restart", {4, 5, 6, 7});
  EXPECT_THAT(Fresh(job), IsEmpty());
}

// In Kubernetes the host name is the pod's.
TEST(HangOfJobsTest, RanksAreOnTheNodeThatTheirEnvironmentNames) {
  HandMadeNode job(2);
  job.AddCommunicator("dp", {0, 1});
  job.Start(0, "dp", 150);
  for (collector::ProcessSnapshot& process : job.node.processes) {
    process.host_name = "trainer-0";
    process.identity.emplace_back("NODE_NAME", "gpu-node-42");
  }
  const std::string text = FindingsText(NodeJudge().Judge(job.node));
  EXPECT_THAT(text, HasSubstr("gpu-node-42"));
  EXPECT_THAT(text, Not(HasSubstr("trainer-0")));
  EXPECT_EQ(Fresh(job).at(0).culprits.at(0).host_name, "gpu-node-42");
}

TEST(HangOfJobsTest, NamesOfOtherProcessesAreHarmless) {
  HandMadeNode job(2);
  job.AddCommunicator("dp", {0, 1});
  job.Start(0, "dp", 150);
  for (collector::ProcessSnapshot& process : job.node.processes) {
    process.host_name = "\x1b[2Jhost\n";
    process.communicators[0].name = "\x1b[31m\xff";
    process.communicators[0].gpu_uuid = "\x1b";
    process.identity = {
        {"SLURM_JOB_ID", "\x1b]0;"}, {"NODE_NAME", "\x1b[2Jhost\n"}, {"POD_NAME", "\x07"}};
  }
  NodeJudge judge;
  const std::string text = FindingsText(judge.Judge(job.node));
  EXPECT_THAT(text, HasSubstr("hangs"));
  for (const char character : text)
    EXPECT_TRUE(character == '\n' || static_cast<uint8_t>(character) >= 0x20);
  const Finding finding = Fresh(job).at(0);
  EXPECT_EQ(finding.communicator_name.find('\x1b'), std::string::npos);
  EXPECT_EQ(finding.culprits.at(0).pod.find('\x07'), std::string::npos);
}

TEST(HangOfJobsTest, ACommunicatorWithoutANameIsCalledByItsId) {
  HandMadeNode job(2);
  job.AddCommunicator("", {0, 1});
  job.Start(0, "", 150);
  job.Of(1, "").numbers = {};
  EXPECT_THAT(Fresh(job).at(0).headline,
              HasSubstr("1 rank waits for rank 1 of communicator 0000abc1 (GPU 1, pid 1001, "
                        "gpu-node-7), which has not entered AllReduce #101 of communicator "
                        "0000abc1."));
}

// Files of other processes may say that a communicator has 2^64 ranks.
TEST(HangOfJobsTest, ANumberOfRanksWithoutEndIsNoLoopWithoutEnd) {
  HandMadeNode job(2);
  job.AddCommunicator("dp", {0, 1}, UINT64_MAX);
  for (size_t rank = 0; rank < 2; ++rank) job.Of(rank, "dp").nodes = 1;
  job.Start({0, 1}, "dp", 150);
  EXPECT_EQ(Evidence(Fresh(job).at(0), "never seen on this node"),
            "rank 2, 3, 4, 5, 6, 7, 8, 9 and 18446744073709551605 more of dp");
}

}  // namespace
}  // namespace nccl_exporter::exporter
