// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/testing/late_job.h"

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr uint64_t kTp = 1, kSp = 2, kDp = 10;  // kDp and up: one per group

std::vector<size_t> FirstProcesses(size_t count) {
  std::vector<size_t> processes;
  for (size_t i = 0; i < count; ++i) processes.push_back(i);
  return processes;
}

// The ranks wait for process `late` for a tenth of the time, in tp.
void StepOfTp(LateJob& job, size_t processes, size_t late, double deficit = 0.1) {
  for (size_t i = 0; i < processes; ++i) job.Busy(i, kTp, i == late ? 0.2 - deficit : 0.2);
}
constexpr size_t kNobody = 1000;

TEST(LateRanksTest, NamesTheRankThatTheOthersWaitFor) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(420, [&] { StepOfTp(job, 8, kNobody); });
  const int64_t begin_ns = job.taken_realtime_ns();
  job.Run(60, [&] { StepOfTp(job, 8, 5, 0.056); });
  EXPECT_THAT(job.EverNamed(), IsEmpty()) << "one minute is not again and again";
  job.Run(90, [&] { StepOfTp(job, 8, 5, 0.056); });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  const Finding finding = job.Findings().front();
  EXPECT_EQ(finding.kind, FindingKind::kLateRank);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.culprits.front().standing, Standing::kLate);
  EXPECT_EQ(finding.culprits.front().global_rank, "5");
  EXPECT_EQ(finding.waiting.size(), 7u);
  EXPECT_EQ(finding.cost, "waiting costs 0.4 GPUs of 8 on this node");
  EXPECT_THAT(finding.headline,
              testing::MatchesRegex("Job 4720 waits for global rank 5 \\(GPU 5, pid 5005, "
                                    "gpu-node-7\\) since 22:2[0-9]:[0-9][0-9] UTC: it makes the "
                                    "other ranks of tp wait 5.6 % of the time."));
  EXPECT_EQ(finding.runbook, "NCCLStragglerRank");
  EXPECT_THAT(finding.evidence,
              Contains(Pair("waits less than the median rank", "5.6 % of the time in tp")));
  EXPECT_THAT(finding.numbers, Contains(Pair("lost_share", testing::DoubleNear(0.056, 1e-3))));
  EXPECT_THAT(finding.numbers, Contains(Pair("lost_gpus", testing::DoubleNear(0.4, 0.05))));
  EXPECT_THAT(finding.numbers, Contains(Pair("gpus", 8)));
  EXPECT_GE(finding.since_realtime_ns, begin_ns);
  EXPECT_LE(finding.since_realtime_ns, begin_ns + 45 * LateJob::kSecondNs);
}

// Regression: minutes after it had ended, a lateness was shown as if it went on.
TEST(LateRanksTest, ALatenessThatHasEndedSaysWhenItWasFoundLast) {
  const auto last_found = Contains(testing::Key("last found late"));
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(420, [&] { StepOfTp(job, 8, kNobody); });
  job.Run(180, [&] { StepOfTp(job, 8, 5); });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  EXPECT_THAT(job.Findings().front().evidence, testing::Not(last_found));
  job.Run(120, [&] { StepOfTp(job, 8, kNobody); });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  EXPECT_THAT(job.Findings().front().evidence, last_found);
}

TEST(LateRanksTest, NamesTheSoonerTheMoreARankCosts) {
  for (const auto& [deficit, seconds] :
       {std::pair(0.15, 90), {0.091, 90}, {0.05, 105}, {0.034, 120}}) {
    LateJob job(8);
    job.Make(kTp, "tp", FirstProcesses(8));
    job.Run(425, [&] { StepOfTp(job, 8, kNobody); });
    const auto work = [&, lateness = deficit] { StepOfTp(job, 8, 5, lateness); };
    job.Run(seconds - 15, work);
    EXPECT_THAT(job.EverNamed(), IsEmpty()) << deficit;
    job.Run(15, work);
    EXPECT_THAT(job.Named(), ElementsAre(5)) << deficit;
  }
}

// Load stays at a rank for a minute. Its rates are in six judgements, and decrease in the last
// ones.
TEST(LateRanksTest, AMinuteOfOneRankProvesNothing) {
  for (const double deficit : {0.1, 0.15, 0.2}) {
    for (const int before : {420, 425, 430}) {
      LateJob job(8);
      job.Make(kTp, "tp", FirstProcesses(8));
      job.Run(before, [&] { StepOfTp(job, 8, kNobody); });
      job.Run(60, [&] { StepOfTp(job, 8, 5, deficit); });
      job.Run(120, [&] { StepOfTp(job, 8, kNobody); });
      EXPECT_THAT(job.EverNamed(), IsEmpty()) << deficit << " " << before;
    }
  }
}

// The rates of three judgements have it.
TEST(LateRanksTest, ALongPauseEveryFourMinutesNamesNobody) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  for (int i = 0; i < 8; ++i) {
    job.Run(235, [&] { StepOfTp(job, 8, kNobody); });
    job.Run(5, [&] { StepOfTp(job, 8, 1, 0.2 - 4); });
  }
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LateRanksTest, TwoRanksThatCostATenthAreNamedAsSoonAsOne) {
  LateJob job(16);
  job.Make(kTp, "tp", FirstProcesses(16));
  job.Run(425, [&] { StepOfTp(job, 16, kNobody); });
  job.Run(90, [&] {
    for (size_t i = 0; i < 16; ++i) job.Busy(i, kTp, i == 3 ? 0.05 : i == 9 ? 0.1 : 0.2);
  });
  EXPECT_THAT(job.Named(), ElementsAre(3, 9));
}

// Ranks of unequal work: now this one, now that one is late for a step or two.
TEST(LateRanksTest, ARankThatIsLateForAMinuteWhereOthersAreLateAsOftenIsNotNamed) {
  LateJob job(8);
  job.Make(kTp, "ep", FirstProcesses(8));
  for (size_t turn = 0; turn < 30; ++turn) {
    job.Run(15, [&] { StepOfTp(job, 8, turn % 8, 0.15); });
    job.Run(45, [&] { StepOfTp(job, 8, kNobody); });
  }
  job.Run(75, [&] { StepOfTp(job, 8, 5, 0.15); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Another rank may be late as often, on a node that is not seen here: its turns of 45 s come
// between.
TEST(LateRanksTest, ATurnOfARankProvesNothingWhereOtherRanksAreElsewhere) {
  LateJob job(8);
  job.Make(kTp, "dp", FirstProcesses(8), 32, 4);
  job.Run(420, [&] { StepOfTp(job, 8, kNobody); });
  for (size_t turn = 0; turn < 12; ++turn) {
    job.Run(45, [&] { StepOfTp(job, 8, turn % 8, 0.15); });
    job.Run(135, [&] { StepOfTp(job, 8, kNobody); });
  }
  EXPECT_THAT(job.EverNamed(), IsEmpty());
  job.Run(600, [&] { StepOfTp(job, 8, kNobody); });
  job.Run(300, [&] { StepOfTp(job, 8, 5, 0.15); });
  EXPECT_THAT(job.EverNamed(), IsEmpty()) << "the others wait no longer than before";
  job.Run(600, [&] {
    for (size_t i = 0; i < 8; ++i) job.Busy(i, kTp, 0.05);
  });
  job.Run(150, [&] { StepOfTp(job, 8, 5, 0.15); });
  EXPECT_THAT(job.Named(), ElementsAre(5)) << "in the end";
}

TEST(LateRanksTest, TheCommunicatorsNameIsSafeOnATerminal) {
  LateJob job(8);
  job.Make(kTp, "tp\x1b[2J" + std::string(300, 'x'), FirstProcesses(8));
  job.Run(600, [&] { StepOfTp(job, 8, 5); });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  EXPECT_THAT(job.Findings().front().communicator_name,
              testing::AllOf(testing::StartsWith("tp?[2Jx"), testing::SizeIs(testing::Le(64u))));
}

TEST(LateRanksTest, StaysForMinutesAfterTheEnd) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(600, [&] { StepOfTp(job, 8, 5); });
  const int64_t since_ns = job.Findings().front().since_realtime_ns;
  job.Run(270, [&] { StepOfTp(job, 8, kNobody); });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  EXPECT_EQ(job.Findings().front().since_realtime_ns, since_ns);
  job.Run(90, [&] { StepOfTp(job, 8, kNobody); });
  EXPECT_THAT(job.Named(), IsEmpty());
}

TEST(LateRanksTest, NamesNobodyBeforeAProcessWasFollowedForFiveMinutes) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(5, [&] { StepOfTp(job, 8, 5); });
  EXPECT_EQ(job.LearningSeconds(), 300);
  job.Run(295, [&] { StepOfTp(job, 8, 5); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
  EXPECT_EQ(job.LearningSeconds(), 5);
  job.Run(20, [&] { StepOfTp(job, 8, 5); });
  EXPECT_THAT(job.Named(), ElementsAre(5));
  EXPECT_EQ(job.LearningSeconds(), 0);
  // A new communicator of an old process is judged as soon as a window is full of it.
  job.Make(kDp, "dp", FirstProcesses(8));
  job.Run(5, [&] { StepOfTp(job, 8, 5); });
  EXPECT_EQ(job.LearningSeconds(), 45);
}

TEST(LateRanksTest, AVictimInTpThatWaitsInDpIsNotTheCulprit) {
  LateJob job(8);
  job.Make(kTp, "tp", {0, 1, 2, 3});
  job.Make(kSp, "tp", {4, 5, 6, 7});
  for (size_t i = 0; i < 4; ++i) job.Make(kDp + i, "dp", {i, i + 4});
  job.Run(600, [&] {
    for (size_t i = 0; i < 4; ++i) {
      job.Busy(i, kTp, i == 3 ? 0.1 : 0.2);
      job.Busy(i + 4, kSp, i == 3 ? 0.1 : 0.2);
      job.Busy(i, kDp + i, i == 3 ? 0.15 : 0.05);
      job.Busy(i + 4, kDp + i, 0.05);
    }
  });
  EXPECT_THAT(job.EverNamed(), testing::AllOf(Not(IsEmpty()), Each(7)));
}

// All ranks of its other group wait, so that none of them is late there.
TEST(LateRanksTest, AVictimThatWaitsWithItsWholeGroupIsNotTheCulprit) {
  LateJob job(8);
  job.Make(kTp, "tp", {0, 1, 2, 3});
  job.Make(kSp, "ep", {3, 4, 5, 6}, 8);
  job.Run(600, [&] {
    for (size_t i = 0; i < 4; ++i) job.Busy(i, kTp, i == 3 ? 0.1 : 0.2);
    for (size_t i = 3; i < 7; ++i) job.Busy(i, kSp, 0.1);
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Others wait for the victim in two communicators, so that the sum over its communicators says that
// it waits less than they do.
TEST(LateRanksTest, AVictimThatWaitsForAnotherNodeIsNotTheCulprit) {
  for (const bool is_victim : {true, false}) {
    LateJob job(8);
    job.Make(kTp, "tp", FirstProcesses(8));
    job.Make(kSp, "sp", FirstProcesses(8));
    for (size_t i = 0; i < 8; ++i) job.Make(kDp + i, "dp", {i}, 2, 2);
    job.Run(600, [&] {
      StepOfTp(job, 8, 3);
      for (size_t i = 0; i < 8; ++i) {
        job.Busy(i, kSp, i == 3 ? 0.1 : 0.2);
        job.Busy(i, kDp + i, i == 3 && is_victim ? 0.1 : 0.02);
      }
    });
    if (is_victim) {
      EXPECT_THAT(job.EverNamed(), IsEmpty());
    } else {
      EXPECT_THAT(job.Named(), ElementsAre(3));
    }
  }
}

// A late rank that waits for another late rank is a victim of it at least in part.
TEST(LateRanksTest, ARankThatWaitsForAnotherLateRankIsNotNamed) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Make(kSp, "sp", FirstProcesses(8));
  job.Run(600, [&] {
    for (size_t i = 0; i < 8; ++i) {
      job.Busy(i, kTp, i == 2 ? 0.1 : 0.4);
      job.Busy(i, kSp, i == 6 ? 0.1 : 0.2);
    }
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty()) << "each waits for the other";
}

TEST(LateRanksTest, StagesOfAPipelineAreUnequalByDesign) {
  for (const bool are_stages : {true, false}) {
    LateJob job(8);
    job.Make(kTp, "world", FirstProcesses(8));
    job.Make(kSp, "pp", FirstProcesses(8));
    job.Run(600, [&] {
      StepOfTp(job, 8, 0);
      for (size_t i = 0; i < 8; ++i) {
        const uint64_t operations = i == 0 && are_stages ? 25 : 50;
        job.Busy(i, kSp, 0.05, Function::kSend, operations, operations);
      }
    });
    EXPECT_EQ(job.EverNamed().empty(), are_stages);
  }
}

// Waits of four stages, which are unequal, and of the others if stage `late` becomes slower.
void StepOfStages(LateJob& job, size_t late, double lateness = 0.1, double per_step = 1) {
  constexpr double kUsual[] = {0.5, 0.25, 0.1, 0.2};
  for (size_t i = 0; i < 4; ++i) {
    const auto operations = static_cast<uint64_t>((i == 0 || i == 3 ? 50 : 100) * per_step);
    const double more = late == kNobody ? 0 : i == late ? -0.3 * lateness : lateness;
    job.Busy(i, kSp, kUsual[i] * per_step + more, Function::kSend, operations, operations);
  }
}

TEST(LateRanksTest, AStageIsComparedWithItsOwnPast) {
  LateJob job(4);
  job.Make(kSp, "pp", FirstProcesses(4));
  job.Run(600, [&] { StepOfStages(job, kNobody); });
  job.Run(300, [&] { StepOfStages(job, kNobody, 0, 0.8); });
  EXPECT_THAT(job.EverNamed(), IsEmpty()) << "longer steps are no lateness";
  job.Run(1200, [&] { StepOfStages(job, 1, 0.1, 0.8); });
  EXPECT_THAT(job.Named(), ElementsAre(1)) << "its past is that before it became slower";
  EXPECT_THAT(job.EverNamed(), Each(1));
  job.Run(600, [&] { StepOfStages(job, kNobody); });
  EXPECT_THAT(job.Named(), IsEmpty());
}

// The others wait for it for five minutes, which is not their usual time.
TEST(LateRanksTest, AStageThatPausesOnceNamesNobody) {
  LateJob job(4);
  job.Make(kSp, "pp", FirstProcesses(4));
  job.Run(600, [&] { StepOfStages(job, kNobody); });
  job.Run(300, [] {});
  job.Run(5, [&] {
    for (size_t i = 1; i < 4; ++i) job.Busy(i, kSp, 60, Function::kSend, 1, 1);
    StepOfStages(job, kNobody);
  });
  job.Run(900, [&] { StepOfStages(job, kNobody); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LateRanksTest, ImbalanceThatMovesBetweenExpertsNamesNobody) {
  LateJob job(8);
  job.Make(kTp, "ep", FirstProcesses(8));
  for (size_t turn = 0; turn < 60; ++turn) job.Run(30, [&] { StepOfTp(job, 8, turn * 5 % 8); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Regression: a load was at the rank for two and a half minutes of six, else at other nodes.
TEST(LateRanksTest, ALoadThatComesBackFromOtherNodesNamesNobody) {
  LateJob job(4);
  job.Make(kTp, "ep", FirstProcesses(4));
  job.Make(kDp, "dp", FirstProcesses(4), 16, 4);
  const auto load = [&](size_t loaded, int seconds) {
    job.Run(seconds, [&] {
      for (size_t i = 0; i < 4; ++i) {
        job.Busy(i, kTp, loaded == kNobody || loaded == i ? 0.1 : 0.2);
        job.Busy(i, kDp, loaded == kNobody ? 0.2 : 0.1);
      }
    });
  };
  load(kNobody, 120);
  load(2, 75);
  load(kNobody, 60);
  load(2, 90);
  load(kNobody, 60);
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Half of the ranks at a time, so that chance explains each turn. Then one has a turn alone.
TEST(LateRanksTest, AMinuteOfOneRankProvesNothingWhereRanksAreUneven) {
  LateJob job(8);
  job.Make(kTp, "ep", FirstProcesses(8));
  for (size_t turn = 0; turn < 12; ++turn) {
    job.Run(45, [&] {
      for (size_t i = 0; i < 8; ++i) job.Busy(i, kTp, (i + turn) % 8 < 4 ? 0.1 : 0.3);
    });
  }
  job.Run(75, [&] { StepOfTp(job, 8, 5, 0.1); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Each is late for minutes, and in less than three quarters of the judgements in which one is.
TEST(LateRanksTest, ExpertsThatTakeTurnsForMinutesNameNobody) {
  LateJob job(8);
  job.Make(kTp, "ep", FirstProcesses(8));
  for (size_t turn = 0; turn < 15; ++turn) job.Run(120, [&] { StepOfTp(job, 8, 2 * (turn % 3)); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LateRanksTest, ADifferenceThatChanceExplainsNamesNobody) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  const double busy[] = {0.16, 0.175, 0.18, 0.2, 0.2, 0.22, 0.24, 0.26};
  job.Run(600, [&] {
    for (size_t i = 0; i < 8; ++i) job.Busy(i, kTp, busy[i]);
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LateRanksTest, OneSpikeOfGarbageCollectionNamesNobody) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  for (int i = 0; i < 4; ++i) {
    job.Run(300, [&] { StepOfTp(job, 8, kNobody); });
    job.Run(5, [&] {
      for (size_t rank = 0; rank < 8; ++rank) job.Busy(rank, kTp, rank == 1 ? 0.1 : 0.9);
    });
  }
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LateRanksTest, NamesAtMostAnEighthOfTheRanks) {
  for (const size_t ranks : {16, 12}) {
    LateJob job(ranks);
    job.Make(kTp, "tp", FirstProcesses(ranks));
    job.Run(600, [&] {
      for (size_t i = 0; i < ranks; ++i) job.Busy(i, kTp, i == 3 || i == 9 ? 0.1 : 0.2);
    });
    if (ranks == 16) {
      EXPECT_THAT(job.Named(), ElementsAre(3, 9));
    } else {
      EXPECT_THAT(job.EverNamed(), IsEmpty());
    }
  }
}

TEST(LateRanksTest, ARankWithRejectedTimeStampsIsNotCompared) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(600, [&] {
    for (size_t i = 0; i < 8; ++i)
      job.Busy(i, kTp, i == 4 ? 0.1 : 0.2, Function::kAllReduce, 50, i == 4 ? 40 : 50);
    job.Arrive(4, kTp, 30, 30, 0.1);  // nor by the arrivals that are known
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LateRanksTest, ComparesNobodyWithRanksOfAnotherTimingSource) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  for (size_t i = 0; i < 5; ++i) job.In(i, kTp).timing_source = TimingSource::kProxy;
  job.Run(600, [&] { StepOfTp(job, 8, 6); });
  EXPECT_THAT(job.EverNamed(), IsEmpty()) << "three have its source, and four are needed";
}

// Each of 8 buckets of gradients waits for the one lateness of the step.
TEST(LateRanksTest, AcrossNodesALatenessCountsOncePerStep) {
  for (const double lateness : {0.01, 0.05}) {
    LateJob job(8);
    job.Make(kTp, "dp", FirstProcesses(8), 32, 4);
    job.Run(600, [&] {
      for (size_t i = 0; i < 8; ++i) {  // a step is 1 s
        const double waits = i == 2 ? 0 : 8 * lateness;
        job.Busy(i, kTp, 0.1 + waits, Function::kReduceScatter, 40, 40);
        job.Busy(i, kTp, 0.01 + (i == 2 ? 0 : lateness), Function::kAllGather, 5, 5);
      }
    });
    if (lateness < Thresholds().straggler_threshold) {
      EXPECT_THAT(job.EverNamed(), IsEmpty());
    } else {
      ASSERT_THAT(job.Named(), ElementsAre(2));
      const Finding finding = job.Findings().front();
      EXPECT_THAT(finding.headline, HasSubstr("wait 5.0 % of the time."));
      EXPECT_THAT(finding.evidence,
                  Contains(Pair("waits less than the median rank", "5.0 % of the time in dp")))
          << "and not 40 %, which kernels count";
      EXPECT_THAT(finding.cost, testing::MatchesRegex("waiting costs 0.[34] GPUs of 8 on this "
                                                      "node"))
          << "0.35 of the ranks here";
    }
  }
}

TEST(LateRanksTest, ARankLateInTwoCommunicatorsIsOneFinding) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Make(kSp, "ep", FirstProcesses(8));
  job.Run(600, [&] {
    StepOfTp(job, 8, 5);
    for (size_t i = 0; i < 8; ++i) job.Busy(i, kSp, i == 5 ? 0.05 : 0.1);
  });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  EXPECT_EQ(job.Findings().front().communicator_name, "tp") << "it costs more";
  EXPECT_THAT(job.Findings().front().evidence, Contains(Pair("late as well in", "ep (5.0 %)")));
}

// The one of two ranks that waits less is late.
TEST(LateRanksTest, NamesTheLateOneOfTwoAndOfThreeRanks) {
  for (const size_t ranks : {2, 3}) {
    LateJob job(ranks);
    job.Make(kTp, "tp", FirstProcesses(ranks));
    job.Run(420, [&] { StepOfTp(job, ranks, kNobody); });
    job.Run(105, [&] { StepOfTp(job, ranks, 1); });
    EXPECT_THAT(job.Named(), ElementsAre(1));
  }
}

TEST(LateRanksTest, TwoRanksThatAreLateByTurnsAreNotNamed) {
  LateJob job(2);
  job.Make(kTp, "tp", FirstProcesses(2));
  for (size_t turn = 0; turn < 20; ++turn) job.Run(60, [&] { StepOfTp(job, 2, turn % 2); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// The ends of a pipeline share an embedding: the first stage comes to it last, by design.
TEST(LateRanksTest, APairWhoseProcessesSendAndReceiveIsOfStages) {
  LateJob job(4);
  job.Make(kSp, "pp", FirstProcesses(4));
  job.Make(kTp, "embedding", {0, 3});
  job.Run(900, [&] {
    for (size_t i = 0; i < 4; ++i) job.Busy(i, kSp, 0.1, Function::kSend, 50, 50);
    job.Busy(0, kTp, 0.1);
    job.Busy(3, kTp, 0.3);
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Those of 75 s have two judgements each, which are no proof.
TEST(LateRanksTest, ALateRankIsNamedInCommunicatorsThatAreMadeAnew) {
  for (const int seconds : {75, 180}) {
    LateJob job(8);
    size_t late = kNobody;
    uint64_t turn = 0;
    const auto run = [&](int turns) {
      for (int end = turns; end > 0; --end) {
        job.Make(kDp + ++turn, "dp", FirstProcesses(8));
        job.Run(seconds, [&] {
          for (size_t i = 0; i < 8; ++i) job.Busy(i, kDp + turn, i == late ? 0.1 : 0.2);
        });
      }
    };
    run(600 / seconds);
    EXPECT_THAT(job.EverNamed(), IsEmpty()) << seconds;
    late = 5;
    run(180 / seconds);
    EXPECT_THAT(job.EverNamed(), Contains(5)) << seconds;
    EXPECT_THAT(job.EverNamed(), Each(5)) << seconds;
  }
}

TEST(LateRanksTest, HoldsForEveryScaleOfTime) {
  LateJob job(8, Thresholds().Scaled(15), 15);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(300, [&] { StepOfTp(job, 8, 5); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
  job.Run(60, [&] { StepOfTp(job, 8, 5); });
  EXPECT_THAT(job.Named(), ElementsAre(5));
}

TEST(LateRanksTest, AProcessThatEndedIsNotNamed) {
  LateJob job(8);
  job.Make(kTp, "tp", FirstProcesses(8));
  job.Run(600, [&] { StepOfTp(job, 8, 5); });
  ASSERT_THAT(job.Named(), ElementsAre(5));
  job.node().processes[5].is_alive = false;
  EXPECT_THAT(job.Named(), IsEmpty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
