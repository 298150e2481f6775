// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/node_judge.h"
#include "exporter/findings/node_troubles.h"
#include "exporter/findings/testing/hand_made_node.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class KilledProcessesTest : public testing::Test {
 protected:
  KilledProcessesTest() {
    job_.AddCommunicator("tp", {0, 1});
    job_.AddCommunicator("world", {0, 1, 2, 3});
  }
  void Kill(size_t process) { job_.node.processes[process].is_alive = false; }
  HandMadeNode job_{4};
};

TEST_F(KilledProcessesTest, AJobThatRunsHasNone) {
  EXPECT_THAT(KilledProcesses(job_.node), IsEmpty());
}

TEST_F(KilledProcessesTest, AProcessThatEndedBeforeItFinalizedIsNamed) {
  Kill(1);
  job_.Start(0, "tp", 500);
  const std::vector<Finding> findings = KilledProcesses(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kProcessKilled);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_EQ(findings[0].job_name, "4712");
  EXPECT_EQ(
      findings[0].headline,
      "1 process of job 4712 has ended without finalizing NCCL: global rank 1 (GPU 1, pid 1001, "
      "gpu-node-7).");
  EXPECT_EQ(findings[0].cost, "1 of 4 processes on this node");
  EXPECT_EQ(findings[0].numbers, (std::vector<std::pair<std::string, double>>{
                                     {"ended_processes", 1}, {"processes", 4}}));
  EXPECT_EQ(findings[0].since_realtime_ns, kNow - 600 * kSecond);
  EXPECT_THAT(findings[0].culprits, ElementsAre(Field(&FoundRank::standing, Standing::kKilled)));
  EXPECT_THAT(findings[0].next, HasSubstr("why pid 1001 on gpu-node-7 has ended"));
}

TEST_F(KilledProcessesTest, AProcessThatFinalizedHasEndedProperly) {
  Kill(1);
  for (auto& communicator : job_.node.processes[1].communicators) communicator.is_closed = true;
  EXPECT_THAT(KilledProcesses(job_.node), IsEmpty());
}

// Found with the scenario killed-rank-pp: each rank shares its pipeline with ranks of other nodes.
TEST_F(KilledProcessesTest, AKilledRankOfWhichAllPeersAreElsewhereIsAWarning) {
  HandMadeNode job(2);
  job.AddCommunicator("pp", {0}, 4);
  job.AddCommunicator("pp", {1}, 4);
  job.node.processes[1].is_alive = false;
  job.Complete(0, "pp", 5);  // it goes on
  const std::vector<Finding> findings = KilledProcesses(job.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
}

// Regression: the clock was set back by two hours, so the living seemed to be younger than the
// dead.
TEST_F(KilledProcessesTest, AClockThatWasSetBackMakesNoRestart) {
  Kill(1);
  job_.Start(0, "tp", 500);
  job_.SetClock(-7200);
  const std::vector<Finding> findings = KilledProcesses(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
}

// As where rank 0 alone writes the model, after the others have ended without finalizing.
TEST_F(KilledProcessesTest, WhereNobodyWaitsOrGoesOnTheEndIsInformation) {
  for (size_t process = 1; process < 4; ++process) Kill(process);
  const std::vector<Finding> findings = KilledProcesses(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kInfo);
}

// Most programs end so: it is no trouble.
TEST_F(KilledProcessesTest, AJobOfWhichAllHaveEndedIsInformation) {
  for (size_t process = 0; process < 4; ++process) Kill(process);
  const std::vector<Finding> findings = KilledProcesses(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kInfo);
  EXPECT_THAT(findings[0].headline, HasSubstr("4 processes of job 4712 have ended without"));
  EXPECT_EQ(findings[0].next, "");
}

TEST_F(KilledProcessesTest, TheAttemptBeforeARestartIsInformation) {
  for (size_t process = 0; process < 4; ++process) Kill(process);
  for (uint64_t rank = 0; rank < 4; ++rank)
    job_.AddProcess(rank).start_realtime_ns = kNow - 60 * kSecond;
  job_.AddCommunicator("world", {4, 5, 6, 7});
  const std::vector<Finding> findings = KilledProcesses(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kInfo);
}

TEST_F(KilledProcessesTest, JobsAreKeptApart) {
  job_.node.processes[3].identity[0].second = "99";
  Kill(3);
  Kill(0);
  job_.Start(1, "tp", 500);
  const std::vector<Finding> findings = KilledProcesses(job_.node);
  EXPECT_THAT(findings, ElementsAre(Field(&Finding::severity, Severity::kWarning),
                                    Field(&Finding::severity, Severity::kInfo)));
}

TEST_F(KilledProcessesTest, ManyAreNotAllNamedInTheHeadline) {
  HandMadeNode job(8);
  job.AddCommunicator("world", {0, 1, 2, 3, 4, 5, 6, 7});
  for (size_t process = 1; process < 8; ++process) job.node.processes[process].is_alive = false;
  const Finding finding = KilledProcesses(job.node).at(0);
  EXPECT_THAT(finding.headline,
              HasSubstr("global rank 4 (GPU 4, pid 1004, gpu-node-7) and 3 more."));
  EXPECT_THAT(finding.culprits, SizeIs(7));
}

// Found with the scenario hang-then-restart: nothing has moved for long when its processes end.
TEST_F(KilledProcessesTest, AHungJobThatEndsProcessByProcessIsNoWarning) {
  NodeJudge judge;
  for (size_t rank = 0; rank < 4; ++rank) job_.Start(rank, "world", 100);
  const auto severity = [&] {
    for (const Finding& finding : judge.Judge(job_.node).findings) {
      if (finding.kind == FindingKind::kProcessKilled) return finding.severity;
    }
    return Severity::kInfo;
  };
  int64_t now_ns = 0;
  judge.Record(BookOf(job_.node), now_ns);
  for (size_t process = 0; process < 3; ++process) Kill(process);
  EXPECT_EQ(severity(), Severity::kInfo);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(severity(), Severity::kInfo) << step;
    judge.Record(BookOf(job_.node), now_ns += 5 * kSecond);
  }
  EXPECT_EQ(severity(), Severity::kWarning) << "it does not end";
}

TEST_F(KilledProcessesTest, OneFaultIsOneFinding) {
  Kill(1);
  for (const size_t rank : {0, 2, 3}) job_.Start(rank, "world", 150);
  EXPECT_THAT(NodeJudge().Judge(job_.node).findings,
              ElementsAre(Field(&Finding::kind, FindingKind::kHangCulprit)));
}

}  // namespace
}  // namespace nccl_exporter::exporter
