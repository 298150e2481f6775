// SPDX-License-Identifier: Apache-2.0
// Cases have the names of those of the rules (deploy/prometheus/tests/hang_cases.py) where they are
// the same.
#include "exporter/findings/hangs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/testing/hand_made_node.h"
#include "exporter/findings/testing/hang_expectations.h"

namespace nccl_exporter::exporter {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

// Eight ranks of one communicator.
class HangTest : public testing::Test {
 protected:
  HangTest() { job_.AddCommunicator("fsdp", kAll); }
  // Rank 3 calls nothing.
  void MissCall(int64_t seconds_ago) {
    job_.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", seconds_ago, Function::kAllGather);
  }

  // All ranks are threads of one process, whose GPUs have no numbers. `identify` has the rank in
  // the job.
  template <typename Identify>
  void ShareAProcess(Identify identify) {
    std::vector<collector::CommunicatorSnapshot> all;
    for (const size_t rank : kAll) {
      for (collector::CommunicatorSnapshot& here : job_.node.processes[rank].communicators) {
        here.gpu_index = -1;
        here.pci_bus_id = "";
        identify(rank, here);
        all.push_back(here);
      }
    }
    job_.node.processes.resize(1);
    job_.node.processes[0].communicators = all;
  }
  // Rank 3 is named alone.
  static auto IsMissedCall(const testing::Matcher<std::string>& cost) {
    return AllOf(IsKind(FindingKind::kHangCulprit), Field(&Finding::cost, cost),
                 Field(&Finding::culprits,
                       ElementsAre(AllOf(Field(&FoundRank::rank, 3u),
                                         Field(&FoundRank::standing, Standing::kMissingCall)))));
  }

  const std::vector<size_t> kAll{0, 1, 2, 3, 4, 5, 6, 7};
  HandMadeNode job_{8};
};

// A culprit and one that waits for it, where a shell may run all of it as it stands.
TEST_F(HangTest, SaysWhatToSaveBeforeTheJobIsKilled) {
  MissCall(150);
  const Finding finding = Fresh(job_).at(0);
  EXPECT_THAT(
      finding.collect,
      ElementsAre(
          Pair("stack of global rank 3 (GPU 3, pid 1003, gpu-node-7)", "py-spy dump --pid 1003"),
          Pair("flight recorder of global rank 3, of PyTorch, up to collective 100",
               "sh -c 'cat ~/.cache/torch/comm_lib_trace_rank_3 || cat /tmp/nccl_trace_rank_3' "
               ">rank-3.flight-recorder"),
          Pair("stack of global rank 0 (GPU 0, pid 1000, gpu-node-7)", "py-spy dump --pid 1000"),
          Pair("flight recorder of global rank 0, of PyTorch, up to collective 101",
               "sh -c 'cat ~/.cache/torch/comm_lib_trace_rank_0 || cat /tmp/nccl_trace_rank_0' "
               ">rank-0.flight-recorder"),
          Pair("all processes of the job, by NCCL 2.24 and later", "ncclras -v"),
          Pair("GPUs and the kernel's log of this node: XID, out of memory",
               "sh -c 'nvidia-smi -q; dmesg -T'")));
  EXPECT_THAT(finding.numbers, ElementsAre(Pair("lost_gpus", 7), Pair("gpus", 8)));
}

TEST_F(HangTest, EntersPodsToSaveAndNamesNoneThatAShellWouldRun) {
  for (collector::ProcessSnapshot& process : job_.node.processes)
    process.identity.insert(process.identity.end(),
                            {{"POD_NAME", "llama-0-x"}, {"POD_NAMESPACE", "research"}});
  MissCall(150);
  EXPECT_THAT(
      Fresh(job_).at(0).collect,
      AllOf(Contains(Pair(HasSubstr("stack of global rank 3"),
                          "kubectl exec -n research llama-0-x -- py-spy dump --pid 1003")),
            Contains(Pair(testing::_, "kubectl exec -n research llama-0-x -- ncclras -v"))));
  for (const char* const name : {"$(reboot)", "a;reboot", "-it", "a b", "A"}) {
    for (collector::ProcessSnapshot& process : job_.node.processes)
      (process.identity.end() - 2)->second = name;
    const std::vector<std::pair<std::string, std::string>> collect = Fresh(job_).at(0).collect;
    EXPECT_THAT(collect, ElementsAre(Pair(testing::_, "sh -c 'nvidia-smi -q; dmesg -T'"))) << name;
  }
}

TEST_F(HangTest, AQuietNodeHasNone) { EXPECT_THAT(Fresh(job_), IsEmpty()); }

TEST_F(HangTest, AnEmptyNodeHasNone) { EXPECT_THAT(Fresh(HandMadeNode()), IsEmpty()); }

TEST_F(HangTest, APauseOf20SecondsIsNone) {
  MissCall(20);
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

// Regression, operator's trial A1: the victims were shown, and the cause was the only row without
// colour.
TEST_F(HangTest, ARankThatNeverEntersIsNamedAfterTwoMinutesAndTheOthersWait) {
  MissCall(150);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  const Finding& finding = findings[0];
  EXPECT_EQ(finding.kind, FindingKind::kHangCulprit);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.headline,
            "Job 4712 hangs since 22:12:30 UTC: 7 ranks wait for global rank 3 (GPU 3, pid 1003, "
            "gpu-node-7), which has not entered AllGather #101 of fsdp.");
  EXPECT_EQ(finding.cost, "7 of 8 GPUs of this node wait");
  EXPECT_EQ(finding.since_realtime_ns, kNow - 150 * kSecond);
  EXPECT_EQ(finding.job, "job 4712");
  EXPECT_EQ(finding.runbook, "NCCLHangCulprit");
  ASSERT_THAT(finding.culprits, SizeIs(1));
  EXPECT_EQ(finding.culprits[0].standing, Standing::kMissingCall);
  EXPECT_EQ(finding.culprits[0].behind, 1u);
  EXPECT_EQ(finding.culprits[0].operation, "");
  ASSERT_THAT(finding.waiting, SizeIs(7));
  for (const FoundRank& rank : finding.waiting) {
    EXPECT_NE(rank.global_rank, "3");
    EXPECT_EQ(rank.operation, "AllGather #101");
    EXPECT_EQ(rank.since_realtime_ns, kNow - 150 * kSecond);
  }
  EXPECT_THAT(
      finding.evidence,
      ElementsAre(Pair("waiting for", "2 min"),
                  Pair("operation", "AllGather #101 of fsdp, 32.0 MiB"),
                  Pair("collectives started",
                       "101 by global rank 0, 1, 2, 4, 5, 6, 7; 100 by global rank 3"),
                  Pair("behind", "global rank 3 (GPU 3, pid 1003, gpu-node-7) by 1 collective"),
                  Pair("last activity of global rank 3", "22:05:00 UTC, 10 min ago")));
  EXPECT_EQ(finding.next,
            "Look at its stack before the job is killed: py-spy dump --pid 1003 or gdb -p 1003 on "
            "gpu-node-7.");
}

// Regression: the headline had global ranks, and the evidence those of the communicator.
TEST(HangNumbersTest, AFindingNumbersAllItsRanksByTheirGlobalRanks) {
  HandMadeNode job(8);
  job.AddCommunicator("tp", {4, 5, 6, 7});
  job.Start({4, 6, 7}, "tp", 150);
  const Finding finding = Fresh(job).at(0);
  EXPECT_THAT(finding.headline, HasSubstr("3 ranks wait for global rank 5 ("));
  EXPECT_EQ(Evidence(finding, "collectives started"),
            "101 by global rank 4, 6, 7; 100 by global rank 5");
  EXPECT_EQ(Evidence(finding, "last activity of global rank 5"), "22:05:00 UTC, 10 min ago");
  EXPECT_EQ(finding.waiting.at(0).global_rank, "4");
}

TEST(HangNumbersTest, AFindingNumbersAllItsRanksByTheCommunicatorWhereOneHasNoGlobalRank) {
  HandMadeNode job(8);
  job.AddCommunicator("tp", {4, 5, 6, 7});
  job.Start({4, 6, 7}, "tp", 150);
  job.Of(6, "tp").numbers = {};
  const Finding finding = Fresh(job).at(0);
  EXPECT_THAT(finding.headline, HasSubstr("3 ranks wait for rank 1 of tp ("));
  EXPECT_EQ(Evidence(finding, "collectives started"), "101 by rank 0, 2, 3; 100 by rank 1 of tp");
  EXPECT_EQ(Evidence(finding, "last activity of rank 1 of tp"), "22:05:00 UTC, 10 min ago");
  EXPECT_EQ(finding.waiting.at(0).global_rank, "");
}

TEST_F(HangTest, WaitsIsTheWordOfTheWarningFrom30SecondsOn) {
  MissCall(29);
  EXPECT_THAT(Fresh(job_), IsEmpty());
  job_.Wait(1);
  std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_THAT(findings[0].headline, HasSubstr("Job 4712 waits since 22:14:31 UTC: 7 ranks wait"));
  // The rules follow it from 5 s on, and find it in two evaluations.
  job_.Wait(109);
  EXPECT_THAT(Fresh(job_).at(0).headline, HasSubstr("Job 4712 waits since"));
  job_.Wait(1);
  EXPECT_THAT(Fresh(job_).at(0).headline, HasSubstr("Job 4712 hangs since"));
}

// Regression: a save of rank 0 of five minutes was critical.
TEST_F(HangTest, AHangWhoseCauseMayGoOnIsAWarningUntilNcclsOwnTimeOut) {
  MissCall(300);
  EXPECT_EQ(Fresh(job_).at(0).severity, Severity::kWarning);
  job_.Wait(304);
  EXPECT_EQ(Fresh(job_).at(0).severity, Severity::kWarning);
  job_.Wait(1);
  EXPECT_EQ(Fresh(job_).at(0).severity, Severity::kCritical);
}

TEST_F(HangTest, AHangWhoseCauseIsNotOnThisNodeIsAWarningUntilNcclsOwnTimeOut) {
  HandMadeNode job(2);
  job.AddCommunicator("world", {0, 1}, 4);
  job.Start({0, 1}, "world", 604);
  EXPECT_EQ(Fresh(job).at(0).kind, FindingKind::kHangElsewhere);
  EXPECT_EQ(Fresh(job).at(0).severity, Severity::kWarning);
  job.Wait(1);
  EXPECT_EQ(Fresh(job).at(0).severity, Severity::kCritical);
}

TEST_F(HangTest, AHangThatCannotGoOnIsCriticalAfterTwoMinutes) {
  HandMadeNode killed = job_, inside = job_, different = job_;
  killed.Start(kAll, "fsdp", 140);
  killed.node.processes[2].is_alive = false;
  inside.Start(kAll, "fsdp", 140);
  different.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", 140, Function::kAllGather);
  different.Start(3, "fsdp", 140, Function::kReduceScatter);
  for (const HandMadeNode& job : {killed, inside, different})
    EXPECT_EQ(Fresh(job).at(0).severity, Severity::kCritical);
}

TEST_F(HangTest, ACommunicatorOnWhichSomethingMovesDoesNotHang) {
  MissCall(150);
  job_.Of(0, "fsdp").last_progress_realtime_ns = kNow - 5 * kSecond;
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

TEST_F(HangTest, IsSaidThoughTheClockIsSet) {
  MissCall(150);
  job_.SetClock(-3600);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

// Operator's trial A1: inflight had the state, and page and top did not know it.
TEST_F(HangTest, AStoppedRankIsNamedThoughItHasCalledLikeTheOthers) {
  job_.Start(kAll, "fsdp", 150);
  job_.node.processes[6].is_stopped = true;
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].headline,
            "Job 4712 hangs since 22:12:30 UTC: 7 ranks wait for global rank 6 (GPU 6, pid 1006, "
            "gpu-node-7), whose process is stopped.");
  EXPECT_EQ(findings[0].culprits.at(0).standing, Standing::kStopped);
  EXPECT_THAT(findings[0].next, HasSubstr("kill -CONT 1006"));
}

// Operator's trial A1: the dead process was last, and only amber.
TEST_F(HangTest, AKilledRankIsNamedByAFreshObject) {
  job_.Start(kAll, "fsdp", 150);
  job_.node.processes[2].is_alive = false;
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].headline, HasSubstr("7 ranks wait for global rank 2 (GPU 2, pid 1002, "
                                              "gpu-node-7), whose process has ended."));
  EXPECT_EQ(findings[0].culprits.at(0).standing, Standing::kKilled);
  EXPECT_EQ(findings[0].culprits.at(0).behind, 0u);
  EXPECT_THAT(findings[0].waiting, Not(testing::Contains(Field(&FoundRank::global_rank, "2"))));
}

// Dead and stopped ranks are critical after two evaluations of the rules, not after two minutes.

// Follows the job for so long, in steps of the history; findings of the end.
std::vector<Finding> Followed(Hangs& hangs, HandMadeNode& job, int64_t seconds) {
  constexpr int64_t kStep = 5;
  for (int64_t passed = 0; passed < seconds; passed += kStep) {
    job.Wait(kStep);
    hangs.Record(job.node);
  }
  return hangs.Findings(job.node);
}

// A rank that saves for 15 minutes now and then.
TEST_F(HangTest, AWaitThatItsCommunicatorHasSurvivedIsNotCriticalAgain) {
  const auto severity_after = [](Hangs& hangs, HandMadeNode& job, int64_t seconds) {
    return Followed(hangs, job, seconds).at(0).severity;
  };
  Hangs hangs{Thresholds()};
  job_.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", 0);
  EXPECT_EQ(severity_after(hangs, job_, 600), Severity::kWarning);
  EXPECT_EQ(severity_after(hangs, job_, 300), Severity::kCritical);
  for (const size_t rank : kAll) {
    job_.Of(rank, "fsdp").in_flight.clear();
    job_.Complete(rank, "fsdp", -900);
  }
  job_.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", -900);
  EXPECT_EQ(severity_after(hangs, job_, 895), Severity::kWarning);
  EXPECT_EQ(severity_after(hangs, job_, 10), Severity::kCritical);
}

TEST_F(HangTest, AKilledOrStoppedRankIsCriticalAfterTwentySeconds) {
  for (const bool is_killed : {true, false}) {
    HandMadeNode job(8);
    job.AddCommunicator("fsdp", kAll);
    Hangs hangs{Thresholds()};
    job.Start(kAll, "fsdp", 0);
    hangs.Record(job.node);
    job.node.processes[6].is_alive = !is_killed;
    job.node.processes[6].is_stopped = !is_killed;
    EXPECT_THAT(Followed(hangs, job, 15), IsEmpty());
    const std::vector<Finding> findings = Followed(hangs, job, 5);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].severity, Severity::kCritical);
    EXPECT_EQ(findings[0].headline,
              std::string("Job 4712 hangs since 22:15:00 UTC: 7 ranks wait for global rank 6 "
                          "(GPU 6, pid 1006, gpu-node-7), whose process ") +
                  (is_killed ? "has ended." : "is stopped."));
  }
}

TEST_F(HangTest, AKilledRankIsAWarningForTwoMinutesWhereNoCompletionIsSeen) {
  Hangs hangs{Thresholds()};
  job_.Start({0, 1, 2, 3, 4, 5, 7}, "fsdp", 0);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  hangs.Record(job_.node);
  job_.node.processes[6].is_alive = false;
  EXPECT_EQ(Followed(hangs, job_, 30).at(0).severity, Severity::kWarning);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
  EXPECT_EQ(Followed(hangs, job_, 105).at(0).severity, Severity::kWarning);
  EXPECT_EQ(Followed(hangs, job_, 5).at(0).severity, Severity::kCritical);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
}

// A rank that only has not called yet keeps the longer proof.
TEST_F(HangTest, BesideAStoppedRankOneThatIsBehindIsNotNamedYet) {
  for (const bool is_stopped : {false, true}) {
    HandMadeNode job(8);
    job.AddCommunicator("fsdp", kAll);
    Hangs hangs{Thresholds()};
    job.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", 0);
    job.node.processes[6].is_stopped = is_stopped;
    const std::vector<std::string> culprits = Culprits(Followed(hangs, job, 25));
    EXPECT_EQ(culprits, is_stopped ? std::vector<std::string>{"6"} : std::vector<std::string>{});
  }
}

// As by `py-spy dump`, or a debugger for a moment.
TEST_F(HangTest, ARankThatIsStoppedForAMomentOfAPauseIsNotNamed) {
  Hangs hangs{Thresholds()};
  MissCall(0);
  EXPECT_THAT(Followed(hangs, job_, 20), IsEmpty());
  job_.node.processes[3].is_stopped = true;
  EXPECT_THAT(Followed(hangs, job_, 5), IsEmpty());
  job_.node.processes[3].is_stopped = false;
  hangs.Record(job_.node);
  job_.node.processes[3].is_stopped = true;
  hangs.Record(job_.node);
  EXPECT_THAT(hangs.Findings(job_.node), IsEmpty());
}

// At the end of a job ranks end one after the other, and nothing says that the others wait.
TEST_F(HangTest, TheFirstRankToEndIsNotNamedEarlyWhereNoCompletionIsSeen) {
  Hangs hangs{Thresholds()};
  job_.Start(kAll, "fsdp", 0);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  hangs.Record(job_.node);
  job_.node.processes[6].is_alive = false;
  EXPECT_THAT(Followed(hangs, job_, 25), IsEmpty());
}

TEST_F(HangTest, HalfOfTheRanksEndedOrStoppedAreNotNamedEarly) {
  for (const size_t halted : {3, 4}) {
    HandMadeNode job(8);
    job.AddCommunicator("fsdp", kAll);
    Hangs hangs{Thresholds()};
    job.Start(kAll, "fsdp", 0);
    for (size_t rank = 0; rank < halted; ++rank) job.node.processes[rank].is_alive = false;
    EXPECT_EQ(Followed(hangs, job, 25).size(), halted == 3 ? 1 : 0);
  }
}

// Regression: launchers end a job before its hang is half a minute old.
TEST_F(HangTest, ARankThatIsKilledWhenItHasWaitedForTwentySecondsIsNotNamed) {
  Hangs hangs{Thresholds()};
  MissCall(0);
  EXPECT_THAT(Followed(hangs, job_, 20), IsEmpty());
  job_.node.processes[0].is_alive = false;
  EXPECT_THAT(Culprits(Followed(hangs, job_, 60)), ElementsAre("3"));
}

TEST_F(HangTest, TheWholeJobStoppedOrEndedHasNoCulprit) {
  job_.Start(kAll, "fsdp", 150);
  for (auto& process : job_.node.processes) process.is_stopped = true;
  EXPECT_THAT(Fresh(job_), IsEmpty());
  for (auto& process : job_.node.processes) process.is_alive = false;
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

// Operator's trial A3: after the retention, the page had only a number.
TEST_F(HangTest, AKilledRankIsNamedAfterItsSegmentIsGone) {
  Hangs hangs{Thresholds()};
  hangs.Record(job_.node);
  job_.Start(kAll, "fsdp", 0);
  job_.node.processes[6].is_alive = false;
  job_.Wait(5);
  hangs.Record(job_.node);
  job_.node.processes.erase(job_.node.processes.begin() + 6);
  job_.Wait(300);
  hangs.Record(job_.node);
  job_.Wait(6 * 3600);
  hangs.Record(job_.node);
  const std::vector<Finding> findings = hangs.Findings(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].headline, HasSubstr("7 ranks wait for global rank 6 (GPU 6, pid 1006, "
                                              "gpu-node-7), whose process has ended."));
  EXPECT_EQ(findings[0].cost, "7 of 8 GPUs of this node wait");
  EXPECT_EQ(Evidence(findings[0], "first seen ended"), "22:15:05 UTC");
  EXPECT_EQ(findings[0].culprits.at(0).since_realtime_ns, kNow + 5 * kSecond);
}

// Regression: memory was given to users in the order of their ids.
TEST_F(HangTest, AUserWithManyAbsentRanksLeavesRoomForAnothers) {
  constexpr uint64_t kForged = 2 * collector::kMaxCommunicators - 2;
  Hangs hangs{Thresholds()};
  collector::ProcessSnapshot& forger = job_.AddProcess(0, "9");
  forger.uid = 1;
  for (uint64_t rank = 0; rank < kForged; ++rank) {
    forger.communicators.push_back(EmptyCommunicator(7, rank));
    forger.communicators.back().ranks = kForged;
  }
  hangs.Record(job_.node);
  forger.communicators.resize(1);
  job_.node.processes.erase(job_.node.processes.begin() + 6);
  job_.Start({0, 1, 2, 3, 4, 5, 6}, "fsdp", 150);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
}

// Regression: a rank whose communicators found no room in the daemon was named as missing.
TEST_F(HangTest, ARankThatThereIsNoRoomForIsNotMissing) {
  Hangs hangs{Thresholds()};
  hangs.Record(job_.node);
  job_.node.processes[6].communicators.clear();
  job_.node.processes[6].unread_in_use = 1;
  job_.Start({0, 1, 2, 3, 4, 5, 7}, "fsdp", 150);
  hangs.Record(job_.node);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), IsEmpty());
  job_.node.processes[6].unread_in_use = 0;
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
}

// Operator's trial A3.
TEST_F(HangTest, AMissingRankIsNamedIfItWasHere) {
  Hangs hangs{Thresholds()};
  hangs.Record(job_.node);
  job_.node.processes.erase(job_.node.processes.begin() + 6);
  job_.Start({0, 1, 2, 3, 4, 5, 6}, "fsdp", 150);
  // One snapshot alone may lack a rank.
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), IsEmpty());
  hangs.Record(job_.node);
  const std::vector<Finding> findings = hangs.Findings(job_.node);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(
      findings[0].headline,
      HasSubstr("7 ranks wait for global rank 6 (GPU 6, pid 1006, gpu-node-7), which is not "
                "seen on this node any more."));
  EXPECT_EQ(findings[0].culprits.at(0).standing, Standing::kMissing);
}

TEST_F(HangTest, ARankThatWasNeverSeenIsNotBlamed) {
  HandMadeNode job(7);
  job.AddCommunicator("dp", {0, 1, 2, 3, 4, 5, 6}, 8);
  for (size_t rank = 0; rank < 7; ++rank) job.Of(rank, "dp").nodes = 1;
  job.Start({0, 1, 2, 3, 4, 5, 6}, "dp", 150);
  const std::vector<Finding> findings = Fresh(job);
  EXPECT_THAT(findings, ElementsAre(AllOf(IsKind(FindingKind::kHangElsewhere),
                                          Field(&Finding::culprits, IsEmpty()))));
  EXPECT_THAT(findings.at(0).headline,
              HasSubstr("7 ranks wait in AllReduce #101 of dp, and 1 of 8 ranks were never seen on "
                        "this node."));
  EXPECT_EQ(Evidence(findings[0], "never seen on this node"), "rank 7 of dp");
}

// Regression: a rank in the overflow slot of its segment was never seen, and advice was to look for
// ranks without the plugin.
TEST_F(HangTest, ARankWithoutRoomInItsSegmentIsNotMissing) {
  HandMadeNode job(8);
  job.AddCommunicator("dp", {0, 1, 2, 3, 4, 5, 6}, 8);
  for (size_t rank = 0; rank < 7; ++rank) job.Of(rank, "dp").nodes = 1;
  job.Start({0, 1, 2, 3, 4, 5, 6}, "dp", 150);
  collector::ProcessSnapshot& process = job.node.processes[7];
  for (const Loss loss : {Loss::kNoFreeCommunicatorSlot, Loss::kReservationFailed}) {
    process.losses = {};
    process.losses[static_cast<size_t>(loss)] = 1;
    const std::vector<Finding> findings = Fresh(job);
    ASSERT_THAT(findings, ElementsAre(IsKind(FindingKind::kHangElsewhere)));
    EXPECT_THAT(findings[0].headline,
                HasSubstr("and 1 of 8 ranks are not seen on this node, where not all communicators "
                          "have room."));
    EXPECT_THAT(findings[0].next, HasSubstr("NCCLExporterEventsDropped"));
    EXPECT_EQ(Evidence(findings[0], "not seen on this node, where not all communicators have room"),
              "rank 7 of dp");
  }
  process.identity = {{"SLURM_JOB_ID", "4713"}};
  EXPECT_THAT(Fresh(job).at(0).headline, HasSubstr("never seen")) << "it is another job's";
}

TEST_F(HangTest, RanksOnOtherNodesAreNotPromisedWhereRoomIsLacking) {
  HandMadeNode job(8);
  job.AddCommunicator("dp", {0, 1, 2, 3, 4, 5, 6}, 16);
  job.Start({0, 1, 2, 3, 4, 5, 6}, "dp", 150);
  job.node.processes[7].losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)] = 1;
  const Finding finding = Fresh(job).at(0);
  EXPECT_THAT(finding.headline, HasSubstr("and 9 of 16 ranks are not seen on this node, where"));
  EXPECT_THAT(finding.next, HasSubstr("on the other nodes of the job"));
}

TEST_F(HangTest, RanksThatDieWhenAHungJobIsEndedAreNotNamed) {
  Hangs hangs{Thresholds()};
  MissCall(150);
  hangs.Record(job_.node);
  for (const size_t rank : {0, 1, 2, 4}) {
    job_.node.processes[rank].is_alive = false;
    job_.Wait(20);
    hangs.Record(job_.node);
    EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("3"));
  }
  // Nor when their segments are gone.
  job_.node.processes.erase(job_.node.processes.begin());
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("3"));
}

TEST_F(HangTest, ADebuggerOnAVictimMakesNoCulpritOfIt) {
  Hangs hangs{Thresholds()};
  MissCall(150);
  hangs.Record(job_.node);
  job_.node.processes[0].is_stopped = true;
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("3"));
}

// Rank 0 saves for three minutes; rank 6 is killed later.
TEST_F(HangTest, ARankThatWaitedInAHangThatEndedIsNamedWhenItIsKilled) {
  Hangs hangs{Thresholds()};
  job_.Start({1, 2, 3, 4, 5, 6, 7}, "fsdp", 150);
  hangs.Record(job_.node);
  ASSERT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("0"));
  for (const size_t rank : kAll) {
    job_.Of(rank, "fsdp").in_flight.clear();
    job_.Of(rank, "fsdp").started_sequence = job_.Of(rank, "fsdp").completed_sequence = 101;
    job_.Of(rank, "fsdp").last_progress_realtime_ns = kNow;
  }
  hangs.Record(job_.node);
  EXPECT_THAT(hangs.Findings(job_.node), IsEmpty());
  job_.Start(kAll, "fsdp", 0);
  job_.node.processes[6].is_alive = false;
  job_.Wait(150);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
}

TEST_F(HangTest, TheMemoryForgetsCommunicatorsThatAreGone) {
  Hangs hangs{Thresholds()};
  hangs.Record(job_.node);
  const collector::NodeSnapshot before = job_.node;
  for (auto& process : job_.node.processes) process.is_alive = false;
  hangs.Record(job_.node);
  job_.node = before;
  job_.node.processes.pop_back();
  job_.Start({0, 1, 2, 3, 4, 5, 6}, "fsdp", 150);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), IsEmpty());
}

TEST_F(HangTest, AllRanksInsideNamesNobody) {
  job_.Start(kAll, "fsdp", 150);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kHangNobodyBehind);
  EXPECT_EQ(findings[0].headline,
            "Job 4712 hangs since 22:12:30 UTC: all 8 ranks are inside AllReduce #101 of fsdp, and "
            "it does not end.");
  EXPECT_THAT(findings[0].culprits, IsEmpty());
  EXPECT_EQ(findings[0].cost, "8 of 8 GPUs of this node wait");
  EXPECT_EQ(findings[0].runbook, "NCCLHangNobodyBehind");
}

TEST_F(HangTest, ARankInAnotherCallIsNamed) {
  job_.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", 150, Function::kAllGather);
  job_.Start(3, "fsdp", 140);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kHangOtherCall);
  EXPECT_EQ(findings[0].headline,
            "Job 4712 hangs since 22:12:30 UTC: global rank 3 (GPU 3, pid 1003, gpu-node-7) is in "
            "AllReduce #101, the other 7 in AllGather #101 of fsdp.");
  EXPECT_EQ(findings[0].culprits.at(0).standing, Standing::kOtherCall);
  EXPECT_THAT(findings[0].waiting, SizeIs(7));
  EXPECT_EQ(findings[0].cost, "8 of 8 GPUs of this node wait");
  EXPECT_EQ(findings[0].runbook, "NCCLHangMismatchedCall");
}

TEST_F(HangTest, ARankInAnotherCallIsNamedThoughACompletionOfAnotherWasNotSeen) {
  // Rank 2 has a lost completion of 50 minutes ago.
  job_.Of(2, "fsdp").completed_sequence = 99;
  job_.Of(2, "fsdp").in_flight.push_back({.function = Function::kReduceScatter,
                                          .sequence = 7,
                                          .start_realtime_ns = kNow - 3000 * kSecond});
  job_.Start({0, 1, 2, 3, 4, 6, 7}, "fsdp", 150);
  job_.Start(5, "fsdp", 150, Function::kAllGather);
  const std::vector<Finding> findings = Fresh(job_);
  EXPECT_THAT(Culprits(findings), ElementsAre("5"));
  // Nor is it the begin of the hang.
  EXPECT_EQ(findings.at(0).since_realtime_ns, kNow - 150 * kSecond);
}

TEST_F(HangTest, AnOperationThatOthersHaveCompletedIsNoWait) {
  job_.Of(2, "fsdp").completed_sequence = 99;
  job_.Of(2, "fsdp").in_flight.push_back({.function = Function::kAllReduce,
                                          .sequence = 100,
                                          .start_realtime_ns = kNow - 3000 * kSecond});
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

TEST_F(HangTest, TwoRanksInDifferentCallsAreBothSaidAndNeitherIsNamed) {
  HandMadeNode job(2);
  job.AddCommunicator("dp", {0, 1});
  job.Start(0, "dp", 150);
  job.Start(1, "dp", 150, Function::kAllGather);
  const std::vector<Finding> findings = Fresh(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kHangOtherCall);
  EXPECT_THAT(findings[0].culprits, IsEmpty());
  EXPECT_THAT(findings[0].headline,
              HasSubstr("ranks of dp are in different calls: global rank 0 (GPU 0, pid 1000, "
                        "gpu-node-7) is in AllReduce #101, global rank 1 (GPU 1, pid 1001, "
                        "gpu-node-7) is in AllGather #101."));
}

TEST_F(HangTest, ARankThatCallsOnAnotherCommunicatorFirstIsNamed) {
  job_.AddCommunicator("second", kAll);
  job_.Start({0, 1, 2, 4, 5, 6, 7}, "fsdp", 150);
  job_.Start(3, "second", 150);
  const std::vector<Finding> findings = Fresh(job_);
  EXPECT_THAT(findings, ElementsAre(IsKind(FindingKind::kHangOtherCall)));
  EXPECT_THAT(Culprits(findings), ElementsAre("3"));
  EXPECT_THAT(findings.at(0).headline,
              HasSubstr("is in AllReduce #101 of second, the other 7 in AllReduce #101 of fsdp."));
}

TEST_F(HangTest, ACircleOfTwoRanksIsSaidAndNamesNeither) {
  HandMadeNode job(2);
  job.AddCommunicator("first", {0, 1});
  job.AddCommunicator("second", {0, 1});
  job.Start(0, "first", 150);
  job.Start(1, "second", 140);
  const std::vector<Finding> findings = Fresh(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].culprits, IsEmpty());
  EXPECT_THAT(
      findings[0].headline,
      HasSubstr("1 rank waits in AllReduce #101 of first, and global rank 1 (GPU 1, pid 1001, "
                "gpu-node-7) waits in AllReduce #101 of second."));
}

// A Broadcast, Reduce, Gather or Scatter may be complete for a rank while others wait in it.
TEST_F(HangTest, TheRootOfABroadcastThatIsAheadBlamesNobodyElse) {
  job_.Start({1, 2, 4, 5, 6, 7}, "fsdp", 150, Function::kBroadcast);
  job_.Complete(0, "fsdp", 150);
  job_.Start(0, "fsdp", 149);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

TEST_F(HangTest, ARankPastABroadcastIsNotInAnotherCall) {
  job_.Start({1, 2, 3, 4, 5, 6, 7}, "fsdp", 150, Function::kBroadcast);
  job_.Complete(0, "fsdp", 150);
  job_.Start(0, "fsdp", 149);
  EXPECT_THAT(Culprits(Fresh(job_)), IsEmpty());
}

TEST_F(HangTest, RanksWaitInABroadcastThatOthersHaveCompleted) {
  job_.Start({1, 2, 3, 4, 5, 6}, "fsdp", 150, Function::kBroadcast);
  job_.Complete(0, "fsdp", 150);
  job_.Complete(7, "fsdp", 150);
  job_.node.processes[7].is_stopped = true;
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("7"));
}

TEST_F(HangTest, AFinalizedRankIsNamedIfTheOthersWaitForIt) {
  MissCall(150);
  job_.Of(3, "fsdp").is_closed = true;
  const std::vector<Finding> findings = Fresh(job_);
  EXPECT_THAT(Culprits(findings), ElementsAre("3"));
  EXPECT_EQ(Evidence(findings.at(0), "finalized"), "global rank 3");
}

// Found with the scenario missing-call-3d-gpus-of-a-process.
TEST_F(HangTest, ARankIsNamedThoughOtherGpusOfItsProcessWait) {
  MissCall(150);
  collector::ProcessSnapshot& process = job_.node.processes[2];
  for (const size_t rank : {3, 4, 5})
    process.communicators.push_back(job_.node.processes[rank].communicators[0]);
  job_.node.processes.erase(job_.node.processes.begin() + 3, job_.node.processes.begin() + 6);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::kHangCulprit);
  ASSERT_THAT(findings[0].culprits, SizeIs(1));
  EXPECT_EQ(findings[0].culprits[0].rank, 3u);
  EXPECT_EQ(findings[0].cost, "7 of 8 GPUs of this node wait");
}

// Regresses: the GPUs of a process were one if they had no numbers, as in a container. A rank that
// had called nothing was "in AllReduce #2 of elastic-0, the other 2 in AllReduce #2 of elastic-0".
TEST_F(HangTest, ARankIsNamedThoughTheGpusOfItsProcessHaveNoNumbers) {
  MissCall(150);
  job_.AddCommunicator("tp", {2, 4});
  job_.Start({2, 4}, "tp", 150);
  ShareAProcess([](size_t rank, collector::CommunicatorSnapshot& here) {
    here.gpu_uuid = "GPU-" + std::to_string(rank);
  });
  EXPECT_THAT(Fresh(job_), ElementsAre(IsMissedCall("7 of 8 GPUs of this node wait")));
  for (collector::CommunicatorSnapshot& here : job_.node.processes[0].communicators)
    here.pci_bus_id = "0000:3" + std::exchange(here.gpu_uuid, "").substr(4) + ":00.0";
  EXPECT_THAT(Fresh(job_), ElementsAre(IsMissedCall("7 of 8 GPUs of this node wait")));
}

TEST_F(HangTest, ARankIsNamedThoughNothingIsKnownOfTheGpusOfItsProcess) {
  MissCall(150);
  ShareAProcess([](size_t, collector::CommunicatorSnapshot& here) { here.gpu_uuid = ""; });
  EXPECT_THAT(Fresh(job_), ElementsAre(IsMissedCall(testing::_)));
}

TEST_F(HangTest, TwoCulpritsAreOneFinding) {
  job_.Start({0, 1, 2, 4, 5, 7}, "fsdp", 150);
  job_.node.processes[6].is_alive = false;
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(Culprits(findings), ElementsAre("6", "3"));
  EXPECT_THAT(findings[0].headline,
              HasSubstr("6 ranks wait for global rank 6 (GPU 6, pid 1006, gpu-node-7) and 1 more, "
                        "whose process has ended."));
}

// Completions that are not seen: windows, or no timing.

TEST_F(HangTest, AHangIsSaidByWhatWasStartedWhereNoCompletionIsSeen) {
  MissCall(150);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  const std::vector<Finding> findings = Fresh(job_);
  EXPECT_THAT(Culprits(findings), ElementsAre("3"));
  EXPECT_EQ(findings.at(0).since_realtime_ns, kNow - 150 * kSecond);
  EXPECT_THAT(findings[0].headline, HasSubstr("which has not entered an operation of fsdp."));
}

TEST_F(HangTest, AKilledRankIsNamedWhereNoCompletionIsSeenAlsoAfterItsSegmentIsGone) {
  Hangs hangs{Thresholds()};
  job_.Start(kAll, "fsdp", 0);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  hangs.Record(job_.node);
  job_.node.processes[6].is_alive = false;
  job_.Wait(150);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
  job_.node.processes.erase(job_.node.processes.begin() + 6);
  job_.Wait(150);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("6"));
}

// Found with a job of 8: when it was ended, all ranks were "inside", the culprit as well.
TEST_F(HangTest, TheCulpritIsNamedUntilTheJobHasEndedWhereNoCompletionIsSeen) {
  Hangs hangs{Thresholds()};
  MissCall(150);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  hangs.Record(job_.node);
  for (const size_t rank : {1, 2, 7}) {
    job_.node.processes[rank].is_alive = false;
    hangs.Record(job_.node);
    EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("3")) << rank;
  }
}

TEST_F(HangTest, APauseWhereNoCompletionIsSeenIsNone) {
  job_.Start(kAll, "fsdp", 600);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

TEST_F(HangTest, OneRankThatOutlivesItsJobIsNoneWhereNoCompletionIsSeen) {
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  for (size_t rank = 1; rank < 8; ++rank) job_.node.processes[rank].is_alive = false;
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

TEST_F(HangTest, ARankWhoseProcessGoesOnElsewhereDoesNotWaitUnseen) {
  job_.AddCommunicator("other", kAll);
  for (const size_t rank : kAll) {
    if (rank != 3) job_.Complete(rank, "fsdp", 150);
    job_.HideCompletions(rank);
    job_.Of(rank, "other").last_progress_realtime_ns = kNow - kSecond;
  }
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

// ncclCommRevoke ends the thread that reports to the plugin: what it aborts stays in flight, while
// the job goes on with other communicators.
class AbandonedTest : public HangTest {
 protected:
  AbandonedTest() { job_.AddCommunicator("fsdp2", kAll); }
  // All ranks complete an operation of the other communicator.
  void GoOn(int64_t seconds_ago) {
    for (const size_t rank : kAll) job_.Complete(rank, "fsdp2", seconds_ago);
  }
};

TEST_F(AbandonedTest, ACommunicatorThatItsRanksGoOnWithoutIsToldAsInformation) {
  MissCall(150);
  GoOn(2);
  const std::vector<Finding> findings = Fresh(job_);
  ASSERT_THAT(findings, SizeIs(1));
  const Finding& finding = findings[0];
  EXPECT_EQ(finding.kind, FindingKind::kAbandoned);
  EXPECT_EQ(finding.severity, Severity::kInfo);
  EXPECT_EQ(finding.headline,
            "Job 4712: AllGather #101 of fsdp has been in flight since 22:12:30 UTC, and 7 ranks "
            "that are in it go on in other communicators.");
  EXPECT_EQ(finding.cost, "");
  EXPECT_EQ(finding.runbook, "");
  EXPECT_THAT(finding.culprits, IsEmpty());
  EXPECT_THAT(finding.waiting, IsEmpty());
  EXPECT_THAT(finding.evidence, ElementsAre(Pair("in flight for", "2 min"),
                                            Pair("operation", "AllGather #101 of fsdp, 32.0 MiB")));
}

TEST_F(AbandonedTest, IsNoWarningBeforeTheThreshold) {
  MissCall(60);
  GoOn(2);
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

TEST_F(AbandonedTest, NobodyIsNamedWhereARankIsDead) {
  job_.Start(kAll, "fsdp", 150);
  job_.node.processes[6].is_alive = false;
  GoOn(2);
  Hangs hangs{Thresholds()};
  for (int i = 0; i < 4; ++i) hangs.Record(job_.node);
  job_.Wait(30);
  EXPECT_THAT(hangs.Findings(job_.node), ElementsAre(IsKind(FindingKind::kAbandoned)));
}

// Regresses: after a save of five minutes ranks go on in one communicator, and a moment later in
// the other, which the daemon had found abandoned meanwhile.
TEST_F(AbandonedTest, RanksMayGoOnInOneCommunicatorAfterTheOther) {
  Hangs hangs{Thresholds()};
  MissCall(300);
  GoOn(298);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("3"));
  GoOn(0);
  hangs.Record(job_.node);
  EXPECT_THAT(hangs.Findings(job_.node), IsEmpty());
  job_.Wait(29);
  for (const size_t rank : kAll) job_.Complete(rank, "fsdp2", -28);
  hangs.Record(job_.node);
  EXPECT_THAT(hangs.Findings(job_.node), IsEmpty());
  job_.Wait(2);
  hangs.Record(job_.node);
  EXPECT_THAT(hangs.Findings(job_.node), ElementsAre(IsKind(FindingKind::kAbandoned)));
}

TEST_F(AbandonedTest, ADeadRankIsNotNamedWhileTheOthersGoOn) {
  job_.Start(kAll, "fsdp", 20);
  job_.node.processes[6].is_alive = false;
  for (const bool goes_on : {true, false}) {
    if (goes_on) GoOn(1);
    Hangs hangs{Thresholds()};
    for (int i = 0; i < 4; ++i) hangs.Record(job_.node);
    EXPECT_EQ(Culprits(hangs.Findings(job_.node)).empty(), goes_on);
    job_.Wait(14);
  }
}

TEST_F(AbandonedTest, ARankThatWaitedBeforeIsForgotten) {
  Hangs hangs{Thresholds()};
  MissCall(150);
  hangs.Record(job_.node);
  EXPECT_THAT(Culprits(hangs.Findings(job_.node)), ElementsAre("3"));
  job_.Wait(60);
  for (const size_t rank : kAll) job_.Complete(rank, "fsdp2", -58);
  hangs.Record(job_.node);
  job_.node.processes[2].is_alive = false;
  hangs.Record(job_.node);
  job_.Wait(30);
  EXPECT_THAT(hangs.Findings(job_.node), ElementsAre(IsKind(FindingKind::kAbandoned)));
}

TEST_F(AbandonedTest, OneRankThatDoesNotGoOnIsEnoughForAHang) {
  MissCall(150);
  for (const size_t rank : {0, 1, 2, 3, 4, 5, 6}) job_.Complete(rank, "fsdp2", 2);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

TEST_F(AbandonedTest, VictimsThatCompletedWhatWasUnderWayStillHang) {
  MissCall(150);
  GoOn(95);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

TEST_F(AbandonedTest, TheJobMayPauseForTenMinutes) {
  job_.Of(3, "fsdp").last_progress_realtime_ns = kNow - 1100 * kSecond;
  MissCall(1000);
  GoOn(590);
  EXPECT_THAT(Fresh(job_), ElementsAre(IsKind(FindingKind::kAbandoned)));
  job_.Wait(20);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

// Found on NCCL's host code: the job went on in a communicator, destroyed it, and worked without
// NCCL for a while.
TEST_F(AbandonedTest, TheJobMayFinalizeTheCommunicatorInWhichItWentOn) {
  MissCall(300);
  GoOn(20);
  for (const size_t rank : kAll) job_.Of(rank, "fsdp2").is_closed = true;
  EXPECT_THAT(Fresh(job_), ElementsAre(IsKind(FindingKind::kAbandoned)));
  job_.Wait(600);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("3"));
}

TEST_F(AbandonedTest, AHangOfTheOtherCommunicatorIsTold) {
  MissCall(600);
  GoOn(300);
  job_.Start({0, 1, 2, 3, 4, 6, 7}, "fsdp2", 150);
  EXPECT_THAT(Fresh(job_), ElementsAre(AllOf(IsKind(FindingKind::kHangCulprit),
                                             Field(&Finding::communicator_name, "fsdp2")),
                                       IsKind(FindingKind::kAbandoned)));
}

// Regresses: after ten minutes, when it became critical, the ranks were in "another call": that of
// the communicator which they had left.
TEST_F(AbandonedTest, AHangOfTheOtherCommunicatorIsToldHoweverLongItLasts) {
  MissCall(600);
  GoOn(300);
  job_.Start({0, 1, 2, 3, 4, 6, 7}, "fsdp2", 150);
  job_.Wait(900);
  EXPECT_THAT(Fresh(job_), ElementsAre(AllOf(IsKind(FindingKind::kHangCulprit),
                                             Field(&Finding::communicator_name, "fsdp2")),
                                       IsKind(FindingKind::kAbandoned)));
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("5"));
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  EXPECT_THAT(Culprits(Fresh(job_)), ElementsAre("5"));
}

// A process may have several GPUs, and a rank on each.
TEST_F(AbandonedTest, RanksThatGoOnOverOtherGpusOfTheirProcessesHang) {
  for (const bool is_same_gpu : {true, false}) {
    MissCall(150);
    GoOn(2);
    for (const size_t rank : kAll) {
      if (is_same_gpu) continue;
      job_.Of(rank, "fsdp2").gpu_index += 8;
      job_.Of(rank, "fsdp2").gpu_uuid += "-other";
      job_.Of(rank, "fsdp2").pci_bus_id += "-other";
    }
    EXPECT_EQ(Culprits(Fresh(job_)).empty(), is_same_gpu);
  }
}

// A job may call ncclCommAbort, which the plugin does not see, or leave the communicator as it is.
TEST_F(AbandonedTest, ACommunicatorThatIsNeverDestroyedIsInformationForDays) {
  Hangs hangs{Thresholds()};
  MissCall(150);
  for (const int64_t seconds : {0, 600, 3600, 86400, 5 * 86400}) {
    job_.Wait(seconds);
    for (int look = 0; look < 2; ++look) {
      job_.Wait(31);
      GoOn((kNow - job_.node.taken_realtime_ns) / kSecond + 2);
      hangs.Record(job_.node);
    }
    EXPECT_THAT(hangs.Findings(job_.node),
                ElementsAre(AllOf(IsKind(FindingKind::kAbandoned),
                                  Field(&Finding::severity, Severity::kInfo))))
        << seconds;
  }
}

TEST_F(AbandonedTest, WhereNoCompletionIsSeenAJobThatPausesDoesNotHang) {
  MissCall(900);
  for (const size_t rank : kAll) job_.HideCompletions(rank);
  GoOn(400);
  EXPECT_THAT(Fresh(job_), IsEmpty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
