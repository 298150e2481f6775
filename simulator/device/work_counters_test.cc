// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/work_counters.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

EntryWait WaitFor(uint64_t counter) {
  return {.counter = counter, .function = Function::kAllGather, .number = counter};
}

TEST(WorkCounters, EndAWaitWithTheItemThatItMeans) {
  WorkCounters counters;
  counters.Run(true);
  counters.Wait(WaitFor(counters.Count()));
  EXPECT_FALSE(counters.Unending());
}

TEST(WorkCounters, LetAHostWaitForAnItemThatWritesNothing) {
  WorkCounters counters;
  counters.Run(true);
  counters.Run(false);
  counters.Count();
  counters.Wait(WaitFor(counters.Count()));
  ASSERT_TRUE(counters.Unending());
  EXPECT_EQ(counters.Unending()->wait.number, 2u);
  EXPECT_EQ(counters.Unending()->entry, 2u);
  EXPECT_EQ(counters.Unending()->shown, 0u);
}

TEST(WorkCounters, EndAWaitWithAnItemSixtyFourLater) {
  WorkCounters counters;
  counters.Run(false);
  counters.Wait(WaitFor(counters.Count()));
  for (int i = 0; i < 63; ++i) counters.Run(true);
  EXPECT_TRUE(counters.Unending());
  counters.Run(true);
  EXPECT_FALSE(counters.Unending());
}

TEST(WorkCounters, NameTheEarliestOfSeveralWaits) {
  WorkCounters counters;
  for (const uint64_t counter : {70, 6, 5}) counters.Wait(WaitFor(counter));
  ASSERT_TRUE(counters.Unending());
  EXPECT_EQ(counters.Unending()->wait.counter, 5u);
}

TEST(WorkCounters, EndAWaitForNothing) {
  WorkCounters counters;
  counters.Wait(WaitFor(0));
  EXPECT_FALSE(counters.Unending());
}

// 2.26 has one counter, that any later item with the bit sets.
TEST(WorkCounters, EndAWaitWithAnyLaterItemWhereThereIsNoRing) {
  WorkCounters counters;
  counters.SetEntries(1);
  counters.Run(false);
  counters.Wait(WaitFor(counters.Count()));
  EXPECT_TRUE(counters.Unending());
  counters.Run(true);
  EXPECT_FALSE(counters.Unending());
}

}  // namespace
}  // namespace nccl_exporter::sim
