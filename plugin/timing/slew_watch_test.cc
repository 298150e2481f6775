// SPDX-License-Identifier: Apache-2.0
#include "plugin/timing/slew_watch.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Looks each 10 ms for ten seconds, in the fifth of which CLOCK_MONOTONIC gains `slew_ns`. Returns
// how many of them saw a slew.
int SeenOf(int64_t slew_ns, int64_t usual_per_second_ns = 0) {
  SlewWatch watch;
  int seen = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t into_fifth = i < 400 ? 0 : i < 500 ? i - 400 : 100;
    const int64_t gained_ns = slew_ns * into_fifth / 100 + usual_per_second_ns * i / 100;
    const uint64_t raw_ns = 5000 * kMs + static_cast<uint64_t>(i) * 10 * kMs;
    seen += watch.See(raw_ns + static_cast<uint64_t>(gained_ns), raw_ns) ? 1 : 0;
  }
  return seen;
}

TEST(SlewWatch, SeesWhatTheCheckOfTimeStampsDoesNotAllowFor) {
  EXPECT_GT(SeenOf(5'000'000), 80);
  EXPECT_GT(SeenOf(-5'000'000), 80);
  EXPECT_GT(SeenOf(3'000'000), 20);
}

TEST(SlewWatch, AllowsForNtpdAndForTheDriftOfClocks) {
  EXPECT_EQ(SeenOf(0), 0);
  EXPECT_EQ(SeenOf(500'000), 0);
  EXPECT_EQ(SeenOf(0, 300'000), 0);
}

TEST(SlewWatch, IsDueOnceASecond) {
  SlewWatch watch;
  EXPECT_FALSE(watch.Look()) << "the first look";
  watch.Reset();
  EXPECT_TRUE(watch.IsDue(5000 * kMs));
  watch.See(5000 * kMs, 4000 * kMs);
  EXPECT_FALSE(watch.IsDue(5999 * kMs));
  EXPECT_TRUE(watch.IsDue(6000 * kMs));
  watch.Reset();
  EXPECT_TRUE(watch.IsDue(5999 * kMs));
}

}  // namespace
}  // namespace nccl_exporter::plugin
