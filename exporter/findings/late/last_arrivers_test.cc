// SPDX-License-Identifier: Apache-2.0
// Late ranks by the starts of their kernels alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/findings/testing/late_job.h"

namespace nccl_exporter::exporter {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr uint64_t kFirst = 1, kSecond = 2;

// Operations of two ranks, of which `late` is the last to enter 97 %.
void Arrive(LateJob& job, uint64_t id, size_t late, size_t other, double lateness_share) {
  job.Arrive(late, id, 100, 97, lateness_share);
  job.Arrive(other, id, 100, 3, 0.0001);
}
// The other rank waits in the kernel, but for less of the time than makes a late rank.
constexpr double kWait = 0.02;
void Step(LateJob& job, uint64_t id, size_t late, size_t other, double lateness_share) {
  Arrive(job, id, late, other, lateness_share);
  job.Busy(late, id, 0.1);
  job.Busy(other, id, 0.1 + kWait);
}

TEST(LastArriversTest, NamesTheLaterOfTwoRanks) {
  LateJob job(2);
  job.Make(kFirst, "tp", {0, 1});
  job.Run(600, [&] { Step(job, kFirst, 1, 0, 0.21); });
  ASSERT_THAT(job.Named(), ElementsAre(1));
  const Finding finding = job.Findings().front();
  EXPECT_EQ(finding.runbook, "NCCLLastArriver");
  EXPECT_EQ(finding.cost, "waiting costs less than 0.1 GPUs of 2 on this node");
  EXPECT_THAT(finding.headline,
              testing::EndsWith("it is the last on this node to enter 97 % of the "
                                "operations of tp."));
  EXPECT_THAT(finding.evidence, Contains(Pair("last to enter", "97 % of 1800 operations")));
  EXPECT_THAT(finding.evidence, Contains(Pair("late by", "10.50 ms on average")));
  EXPECT_THAT(finding.numbers,
              Contains(Pair("lateness_seconds", testing::DoubleNear(0.0105, 1e-5))));
  EXPECT_THAT(finding.numbers, Contains(Pair("last_share", testing::DoubleNear(0.97, 1e-3))));
}

TEST(LastArriversTest, WantsAShareOfOperationsAndOfTimeAndNotTooFewOfThem) {
  const auto named = [](uint64_t compared, uint64_t last, double lateness_share) {
    LateJob job(2);
    job.Make(kFirst, "tp", {0, 1});
    int step = 0;
    job.Run(720, [&] {
      job.Busy(0, kFirst, 0.1 + kWait);
      job.Busy(1, kFirst, 0.1);
      if (++step % 18 == 0) job.Arrive(1, kFirst, compared, last, 18 * lateness_share);
    });
    return !job.EverNamed().empty();
  };
  EXPECT_TRUE(named(100, 90, 0.1));
  EXPECT_FALSE(named(100, 80, 0.1));
  EXPECT_FALSE(named(100, 90, 0.02));
  EXPECT_FALSE(named(9, 9, 0.1));
}

TEST(LastArriversTest, WantsNinetySecondsWithoutAGap) {
  LateJob job(2);
  job.Make(kFirst, "tp", {0, 1});
  job.Run(600, [&] { Step(job, kFirst, 1, 0, 0.001); });
  job.Run(60, [&] { Step(job, kFirst, 1, 0, 0.2); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
  job.Run(90, [&] { Step(job, kFirst, 1, 0, 0.2); });
  EXPECT_THAT(job.Named(), ElementsAre(1));
}

// The victim is the last of its node in dp, because it waited in tp for another rank.
TEST(LastArriversTest, ALastArriverBehindAnotherOneIsAVictim) {
  LateJob job(3);
  job.Make(kFirst, "tp", {0, 1});
  job.Make(kSecond, "dp", {1, 2});
  job.Run(600, [&] {  // the counters of durations do not show it
    Arrive(job, kFirst, 0, 1, 0.2);
    Arrive(job, kSecond, 1, 2, 0.2);
  });
  EXPECT_THAT(job.EverNamed(), testing::AllOf(Not(IsEmpty()), testing::Each(0)));
}

TEST(LastArriversTest, ALastArriverThatWaitsForAnotherOneIsAVictim) {
  LateJob job(3);
  job.Make(kFirst, "tp", {0, 1});
  job.Make(kSecond, "dp", {1, 2});
  job.Run(600, [&] {
    Arrive(job, kFirst, 0, 1, 0.2);
    job.Busy(0, kFirst, 0.1);
    job.Busy(1, kFirst, 0.3);
    Arrive(job, kSecond, 1, 2, 0.2);
    job.Busy(1, kSecond, 0.1);
    job.Busy(2, kSecond, 0.5);
  });
  EXPECT_THAT(job.EverNamed(), testing::AllOf(Not(IsEmpty()), testing::Each(0)));
}

// Rank 1 is late in dp for it waits for a rank of another node in tp; in all its communicators
// together it waits as long as the other.
TEST(LastArriversTest, ALastArriverThatWaitsAsLongAsTheOthersIsAVictim) {
  LateJob job(2);
  job.Make(kFirst, "dp", {0, 1});
  job.Make(kSecond, "tp", {1}, 2, 1);
  job.Run(600, [&] {
    Step(job, kFirst, 1, 0, 0.2);
    job.Busy(1, kSecond, 0.2);
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

TEST(LastArriversTest, AcrossNodesALatenessCountsOncePerStep) {
  LateJob job(2);
  job.Make(kFirst, "dp", {0, 1}, 4, 2);
  job.Run(600, [&] {  // 50 operations in 5 s, of which 5 are the rarest: a step of 1 s
    Arrive(job, kFirst, 1, 0, 0.2);  // 10 ms for each of 100
    for (size_t i = 0; i < 2; ++i) {
      job.Busy(i, kFirst, i == 1 ? 0.1 : 0.3, Function::kAllReduce, 95, 95);
      job.Busy(i, kFirst, 0.01, Function::kReduceScatter, 5, 5);
    }
  });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

// Regression: the wait of the others was compared with a mean of judgements in which the rank was
// already the last.
TEST(LastArriversTest, AcrossNodesARankStaysNamedForAsLongAsItIsTheLast) {
  LateJob job(2);
  job.Make(kFirst, "dp", {0, 1}, 4, 2);
  job.Run(600, [&] { Step(job, kFirst, 1, 0, 0.2); });
  for (int minute = 0; minute < 20; ++minute) {
    ASSERT_THAT(job.Named(), ElementsAre(1)) << minute;
    job.Run(60, [&] { Step(job, kFirst, 1, 0, 0.2); });
  }
}

// A5 of the operator trial: the completion rings hold minutes of operations when the daemon starts,
// all of which are compared in its first seconds.
TEST(LastArriversTest, TheBacklogOfTheRingsAfterALateStartNamesNobody) {
  Thresholds times;
  times.warm_up = {};  // a warm-up alone would hide it
  LateJob job(4, times);
  job.Make(kFirst, "embedding", {0, 1});
  job.Make(kSecond, "embedding", {2, 3});
  for (size_t process = 0; process < 4; ++process)
    job.In(process, process < 2 ? kFirst : kSecond).created_realtime_ns -=
        3600 * LateJob::kSecondNs;
  const auto step = [&](double lateness_share) {
    for (const uint64_t id : {kFirst, kSecond}) {
      const size_t first = id == kFirst ? 0 : 2;
      Arrive(job, id, first, first + 1, lateness_share);
      job.Busy(first, id, 0.1);
      job.Busy(first + 1, id, 0.1 + kWait);
    }
  };
  job.Run(5, [&] { step(30); });  // minutes of lateness within the first steps
  EXPECT_THAT(job.EverNamed(), IsEmpty()) << "--once";
  job.Run(15, [&] { step(30); });
  job.Run(900, [&] { step(0.02); });
  EXPECT_THAT(job.EverNamed(), IsEmpty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
