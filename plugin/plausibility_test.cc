// SPDX-License-Identifier: Apache-2.0
#include "plugin/plausibility.h"

#include <gtest/gtest.h>

namespace nccl_exporter {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1000 * kUs;
constexpr uint64_t kSecond = 1000 * kMs;

// A GPU whose clock is `distance` behind the CPU's. Launch n is called at call_ns, starts 10 us later, and is delivered
// 5 us after its stop.
LaunchTimes Launch(uint64_t ticket, uint64_t call_ns, uint64_t duration_ns, uint64_t distance_ns = 1000 * kSecond) {
  const uint64_t start_ns = call_ns + 10 * kUs;
  return {.first_ticket = ticket,
          .last_ticket = ticket,
          .newest_ticket = ticket,
          .start_ns = start_ns + distance_ns,
          .stop_ns = start_ns + duration_ns + distance_ns,
          .call_ns = call_ns,
          .delivered_ns = start_ns + duration_ns + 5 * kUs};
}

TEST(Plausibility, BelievesLaunchesInOrder) {
  Plausibility judge;
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(judge.Judge(Launch(i, i * kMs, 100 * kUs)), std::nullopt) << i;
  }
}

TEST(Plausibility, BelievesClocksThatDriftApartSlowly) {
  Plausibility judge;
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(judge.Judge(Launch(i, i * kSecond, 100 * kUs, 1000 * kSecond + i * 300 * kUs)), std::nullopt) << i;
  }
}

TEST(Plausibility, BelievesLongPauses) {
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, kMs)), std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(2, 2 * kSecond, kMs)), std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(3, 3600 * kSecond, kMs)), std::nullopt);
}

TEST(Plausibility, RefusesALaunchThatTookNoTime) {
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 0)), Loss::kStopBeforeStart);
}

TEST(Plausibility, RefusesADurationLongerThanTheCpuWaited) {
  Plausibility judge;
  LaunchTimes launch = Launch(1, kSecond, 10 * kMs);
  launch.delivered_ns = launch.call_ns + 50 * kUs;
  EXPECT_EQ(judge.Judge(launch), Loss::kLongerThanCpuTime);
}

TEST(Plausibility, RefusesTheTimesOfTheLaunchBefore) {
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 20 * kUs)), std::nullopt);
  LaunchTimes stale = Launch(2, 2 * kSecond, 20 * kUs);
  const LaunchTimes before = Launch(1, kSecond, 20 * kUs);
  stale.start_ns = before.start_ns;
  stale.stop_ns = before.stop_ns;
  EXPECT_EQ(judge.Judge(stale), Loss::kClockMismatch);
}

TEST(Plausibility, RefusesAClockThatJumps) {
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, kMs)), std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(2, 2 * kSecond, kMs, 1100 * kSecond)), Loss::kClockMismatch);
  EXPECT_EQ(judge.Judge(Launch(3, 3 * kSecond, kMs, 900 * kSecond)), Loss::kClockMismatch);
}

TEST(Plausibility, KnowsAnUpperBoundOnlyWhereTheCallIsNotDated) {
  Plausibility judge;
  LaunchTimes launch = Launch(1, kSecond, kMs);
  launch.call_ns = 0;
  EXPECT_EQ(judge.Judge(launch), std::nullopt);
  launch = Launch(2, 2 * kSecond, kMs);
  launch.call_ns = 0;
  EXPECT_EQ(judge.Judge(launch), std::nullopt);
}

TEST(Plausibility, TakesAnOverlapWithTheLaunchBeforeForDriftEqualTimesIncluded) {
  static_assert(Plausibility::IsDrift(Loss::kOverlap));
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 10 * kMs)), std::nullopt);
  LaunchTimes overlapping = Launch(2, kSecond + kMs, 20 * kMs);
  EXPECT_EQ(judge.Judge(overlapping), Loss::kOverlap);
  LaunchTimes equal = Launch(1, kSecond, 10 * kMs);
  equal.first_ticket = equal.last_ticket = equal.newest_ticket = 3;
  EXPECT_EQ(judge.Judge(equal), Loss::kOverlap);
}

TEST(Plausibility, TakesTimesBeforeThoseOfAnEarlierLaunchThatStillRunsForDrift) {
  Plausibility judge;
  LaunchTimes launch = Launch(2, kSecond, 10 * kMs);
  launch.earlier_ns = launch.start_ns + 1;
  EXPECT_EQ(judge.Judge(launch), Loss::kOverlap);
}

TEST(Plausibility, BelievesALaunchThatIsRecordedLateIfItEndedInTime) {
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(2, 2 * kSecond, kMs)), std::nullopt);
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, kMs)), std::nullopt);
  LaunchTimes too_long = Launch(1, kSecond, kMs);
  too_long.stop_ns = Launch(2, 2 * kSecond, kMs).stop_ns;
  too_long.delivered_ns = 3 * kSecond;
  EXPECT_EQ(judge.Judge(too_long), Loss::kOverlap);
}

TEST(Plausibility, RefusesALaunchWhoseChannelsDidNotRunTogetherButTellsAnOverlapByIt) {
  static_assert(!Plausibility::IsDrift(Loss::kDisjointChannels));
  Plausibility judge;
  LaunchTimes disjoint = Launch(1, kSecond, 10 * kMs);
  disjoint.has_disjoint_channels = true;
  EXPECT_EQ(judge.Judge(disjoint), Loss::kDisjointChannels);
  EXPECT_EQ(judge.Judge(Launch(2, kSecond + 5 * kMs, 10 * kMs)), Loss::kOverlap);
}

// So far ahead of the GPU is the host that a late poll may find the times of other operations.
class PlausibilityFarAhead : public testing::Test {
 protected:
  static constexpr uint64_t kAhead = 200;

  // The next launch begins after `pause_ns`.
  LaunchTimes Next(uint64_t duration_ns, uint64_t pause_ns) {
    call_ns_ += pause_ns;
    LaunchTimes launch = Launch(++ticket_, call_ns_, duration_ns);
    launch.newest_ticket = ticket_ + kAhead;
    launch.call_ns = kSecond;
    call_ns_ += duration_ns;
    return launch;
  }
  void BelieveMany() {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(judge_.Judge(Next(100 * kUs, kMs)), std::nullopt);
  }

  Plausibility judge_;
  uint64_t ticket_ = 0;
  uint64_t call_ns_ = kSecond;
};

TEST_F(PlausibilityFarAhead, BelievesLaunchesOfAnyPaceAndSaysThatTheyMayBeOverrun) {
  BelieveMany();
  EXPECT_EQ(judge_.Judge(Next(128 * kMs, 40 * kMs)), std::nullopt);
  LaunchTimes launch = Next(100 * kUs, kMs);
  EXPECT_TRUE(Plausibility::MayBeOverrun(launch));
  launch.newest_ticket = launch.first_ticket + Plausibility::kOverrunOperations - 1;
  EXPECT_FALSE(Plausibility::MayBeOverrun(launch));
}

TEST_F(PlausibilityFarAhead, RefusesAfterAnOverrunAllThatWasAnnouncedByThen) {
  BelieveMany();
  LaunchTimes disjoint = Next(100 * kUs, kMs);
  disjoint.has_disjoint_channels = true;
  EXPECT_EQ(judge_.Judge(disjoint), Loss::kRingOverrun);
  for (uint64_t i = 0; i < kAhead; ++i) EXPECT_EQ(judge_.Judge(Next(100 * kUs, kMs)), Loss::kRingOverrun) << i;
  EXPECT_EQ(judge_.Judge(Next(100 * kUs, kMs)), std::nullopt);
}

TEST_F(PlausibilityFarAhead, TakesAnOverlapForAnOverrun) {
  BelieveMany();
  LaunchTimes newer = Next(100 * kUs, kMs);
  newer.start_ns += 5 * kMs;
  newer.stop_ns += 5 * kMs;
  newer.delivered_ns += 5 * kMs;
  EXPECT_EQ(judge_.Judge(newer), std::nullopt) << "as if after a pause";
  EXPECT_EQ(judge_.Judge(Next(100 * kUs, kMs)), Loss::kRingOverrun);
}

TEST_F(PlausibilityFarAhead, TakesDisjointChannelsForAnOverrun) {
  BelieveMany();
  LaunchTimes launch = Next(100 * kUs, kMs);
  launch.has_disjoint_channels = true;
  EXPECT_EQ(judge_.Judge(launch), Loss::kRingOverrun);
}

}  // namespace
}  // namespace nccl_exporter
