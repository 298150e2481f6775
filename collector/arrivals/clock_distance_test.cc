// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/clock_distance.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nccl_exporter::collector {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDistance = 3'000'000;

// Distance of two clocks that drift by 50 parts in a million.
int64_t TrueDistance(int64_t at_ns) { return kDistance + at_ns / 20'000; }

void Learn(ClockDistance& distance, int64_t at_ns, int64_t below_ns, int64_t above_ns) {
  distance.LearnLeast(TrueDistance(at_ns) - below_ns, at_ns);
  distance.LearnMost(TrueDistance(at_ns) + above_ns, at_ns);
}
int64_t WidthAt(const ClockDistance& distance, int64_t at_ns) {
  return distance.MostAt(at_ns) - distance.LeastAt(at_ns);
}

TEST(ClockDistance, LoosensByTheMostDriftWhereTheRateIsNotKnown) {
  ClockDistance distance;
  Learn(distance, 0, 10'000, 20'000);
  EXPECT_EQ(WidthAt(distance, 0), 30'000);
  EXPECT_EQ(WidthAt(distance, kSecond), 30'000 + 400'000);
}

TEST(ClockDistance, LearnsTheRateFromBoundsOfDifferentTimes) {
  ClockDistance distance;
  for (int64_t second = 0; second <= 30; ++second)
    Learn(distance, second * kSecond, 10'000, 10'000);
  const int64_t later_ns = 40 * kSecond;
  EXPECT_LE(distance.LeastAt(later_ns), TrueDistance(later_ns));
  EXPECT_GE(distance.MostAt(later_ns), TrueDistance(later_ns));
  EXPECT_LT(WidthAt(distance, later_ns), 70'000) << "ten seconds later: 4 ms without the rate";
}

// One side is always close, as deliveries are; the other one now and then, as a call is that an
// idle GPU waits for.
TEST(ClockDistance, KeepsARareBoundForAsLongAsTheRateIsKnown) {
  ClockDistance distance;
  for (int64_t tenth = 0; tenth <= 590; ++tenth) {
    Learn(distance, tenth * kSecond / 10, tenth % 100 == 0 ? 10'000 : 50'000'000, 10'000);
  }
  EXPECT_LT(WidthAt(distance, 59 * kSecond), 60'000);
}

TEST(ClockDistance, HoldsForClocksWhoseRateChangesSlowly) {
  ClockDistance distance;
  const auto true_ns = [](int64_t at_ns) {  // by up to half a part in a million in 20 s
    const double seconds = static_cast<double>(at_ns) / 1e9;
    return kDistance +
           static_cast<int64_t>(50e3 * seconds + 0.5e3 * 20 / 6.28 * std::sin(seconds * 6.28 / 20));
  };
  for (int64_t tenth = 0; tenth <= 3000; ++tenth) {
    const int64_t at_ns = tenth * kSecond / 10;
    ASSERT_LE(distance.LeastAt(at_ns), true_ns(at_ns)) << tenth;
    ASSERT_GE(distance.MostAt(at_ns), true_ns(at_ns)) << tenth;
    distance.LearnLeast(true_ns(at_ns) - (tenth % 70 == 0 ? 1000 : 5'000'000), at_ns);
    distance.LearnMost(true_ns(at_ns) + (tenth % 30 == 0 ? 1000 : 5'000'000), at_ns);
  }
}

TEST(ClockDistance, BeyondAWindowTheRateIsUnknownAgain) {
  ClockDistance distance;
  for (int64_t second = 0; second <= 30; ++second)
    Learn(distance, second * kSecond, 10'000, 10'000);
  const int64_t window_ns = 30 * kSecond + ClockDistance::kWindowNs;
  EXPECT_NEAR(
      static_cast<double>(WidthAt(distance, window_ns + kSecond) - WidthAt(distance, window_ns)),
      400'000, 10);
}

TEST(ClockDistance, AClockThatIsSetBeginsAnew) {
  for (const int64_t jump_ns : {-kSecond, kSecond}) {
    ClockDistance distance;
    for (int64_t second = 0; second <= 30; ++second)
      Learn(distance, second * kSecond, 10'000, 10'000);
    const int64_t at_ns = 31 * kSecond;
    distance.LearnLeast(TrueDistance(at_ns) + jump_ns - 10'000, at_ns);
    distance.LearnMost(TrueDistance(at_ns) + jump_ns + 10'000, at_ns);
    distance.LearnLeast(TrueDistance(at_ns) + jump_ns - 10'000, at_ns);
    EXPECT_EQ(distance.LeastAt(at_ns), TrueDistance(at_ns) + jump_ns - 10'000);
    EXPECT_EQ(distance.MostAt(at_ns), TrueDistance(at_ns) + jump_ns + 10'000);
    EXPECT_EQ(WidthAt(distance, at_ns + kSecond), 20'000 + 400'000) << "the rate begins anew too";
  }
}

TEST(ClockDistance, AnyNumbersAreTaken) {
  constexpr int64_t kNumbers[] = {INT64_MIN, -(int64_t{1} << 62), -1,       0,
                                  1,         int64_t{1} << 62,    INT64_MAX};
  ClockDistance distance;
  for (const int64_t value : kNumbers) {
    for (const int64_t at : kNumbers) {
      distance.LearnLeast(value, at);
      distance.LearnMost(at, value);
      EXPECT_LE(distance.LeastAt(at), ClockDistance::kUnknown);
      EXPECT_GE(distance.MostAt(value), -ClockDistance::kUnknown);
    }
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
