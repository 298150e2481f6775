// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "plugin/operations/launch_record.h"

namespace nccl_exporter::plugin {
namespace {

TEST(MostOnAChannel, HasNoneBeforeAnythingIsAdded) { EXPECT_EQ(MostOnAChannel{}.Count(), 0u); }

TEST(MostOnAChannel, IsTheChannelWithTheMostNotTheSumOfAll) {
  MostOnAChannel most;
  most.Add(0b0011);
  most.Add(0b0110);
  most.Add(0b1000);
  EXPECT_EQ(most.Count(), 2u);
}

TEST(MostOnAChannel, AgreesWithPlainCounters) {
  std::mt19937_64 random{1};
  MostOnAChannel most;
  std::array<uint64_t, 64> counters{};
  for (int operation = 0; operation < 100; ++operation) {
    const uint64_t channels = random() & random();
    most.Add(channels);
    for (size_t channel = 0; channel < 64; ++channel) counters[channel] += channels >> channel & 1;
    ASSERT_EQ(most.Count(), *std::max_element(counters.begin(), counters.end()));
  }
}

TEST(MostOnAChannel, StaysAtItsLimit) {
  MostOnAChannel most;
  for (int operation = 0; operation < 1000; ++operation) most.Add(1);
  EXPECT_EQ(most.Count(), 128u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
