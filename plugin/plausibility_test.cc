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
LaunchTimes Launch(uint64_t order, uint64_t call_ns, uint64_t duration_ns, uint64_t distance_ns = 1000 * kSecond) {
  const uint64_t start_ns = call_ns + 10 * kUs;
  return {.order = order,
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

TEST(Plausibility, RefusesAnOverlapWithTheLaunchBeforeEqualTimesIncluded) {
  Plausibility judge;
  EXPECT_EQ(judge.Judge(Launch(1, kSecond, 10 * kMs)), std::nullopt);
  LaunchTimes overlapping = Launch(2, kSecond + kMs, 20 * kMs);
  EXPECT_EQ(judge.Judge(overlapping), Loss::kOverlap);
  LaunchTimes equal = Launch(1, kSecond, 10 * kMs);
  equal.order = 3;
  EXPECT_EQ(judge.Judge(equal), Loss::kOverlap);
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

TEST(Plausibility, SuspectsARingOfLaunchesBehindAPauseThatWouldHaveHeldDozens) {
  Plausibility judge;
  uint64_t order = 0, call_ns = kSecond;
  for (; order < 100; call_ns += kMs) EXPECT_EQ(judge.Judge(Launch(++order, call_ns, 100 * kUs)), std::nullopt);
  call_ns += 64 * kMs;
  LaunchTimes late = Launch(++order, call_ns, 100 * kUs);
  late.called_after = 200;
  EXPECT_EQ(judge.Judge(late), Loss::kRingOverrun);
  for (uint64_t i = 1; i < Plausibility::kRingEntries; ++i) {
    EXPECT_EQ(judge.Judge(Launch(++order, call_ns += kMs, 100 * kUs)), Loss::kRingOverrun);
  }
  EXPECT_EQ(judge.Judge(Launch(++order, call_ns += kMs, 100 * kUs)), std::nullopt);
}

TEST(Plausibility, DoesNotSuspectAPauseWhenTheHostIsNotAhead) {
  Plausibility judge;
  uint64_t call_ns = kSecond;
  for (uint64_t order = 1; order <= 100; ++order, call_ns += kMs) judge.Judge(Launch(order, call_ns, 100 * kUs));
  EXPECT_EQ(judge.Judge(Launch(101, call_ns + kSecond, 100 * kUs)), std::nullopt);
}

}  // namespace
}  // namespace nccl_exporter
