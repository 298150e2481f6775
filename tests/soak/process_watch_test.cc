// SPDX-License-Identifier: Apache-2.0
// Growth of made-up samples, and what this process holds itself.
#include "tests/soak/process_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace nccl_exporter::soak {
namespace {

TEST(GrowthOf, TellsTheSlopeOfWhatGrowsAndLeavesOutTheFirstThird) {
  std::vector<Holdings> samples;
  for (int second = 0; second <= 180; ++second) {
    const double start_up = second < 60 ? 1e6 : 0;
    samples.push_back({.seconds = 500. + second, .resident_kib = 1000 + 0.5 * second + start_up});
  }
  const Growth growth = GrowthOf(samples, &Holdings::resident_kib);
  EXPECT_DOUBLE_EQ(growth.second_third, 1060);
  EXPECT_DOUBLE_EQ(growth.last_third, 1090);
  EXPECT_NEAR(growth.slope_per_minute, 30, 1e-6);
}

TEST(HoldingsOf, CountsADescriptorThatIsOpened) {
  const double before = HoldingsOf(getpid(), 0).descriptors;
  const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Holdings now = HoldingsOf(getpid(), 1);
  close(descriptor);
  EXPECT_EQ(now.descriptors, before + 1);
  EXPECT_GT(now.resident_kib, 0);
  EXPECT_GE(now.threads, 1);
}

}  // namespace
}  // namespace nccl_exporter::soak
