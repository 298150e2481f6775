// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/work_ring.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

// Item k runs from 100 k to 100 k + 50.
WorkRing RingOf(int items, int64_t now_ns = 0) {
  WorkRing ring;
  for (int i = 1; i <= items; ++i) ring.Run({100 * i, 100 * i + 50}, now_ns);
  return ring;
}

TEST(WorkRing, ShowsAnItemWhenItsTimeHasCome) {
  const WorkRing ring = RingOf(3);
  EXPECT_EQ(ring.ShownNs(2, Edge::kStart), 200);
  EXPECT_EQ(ring.ShownNs(2, Edge::kStop), 250);
  ASSERT_NE(ring.Shown(2, Edge::kStart, 200), nullptr);
  EXPECT_EQ(ring.Shown(2, Edge::kStart, 200)->start_ns, 200);
}

TEST(WorkRing, KnowsNothingOfWorkThatTheDeviceHasNot) {
  EXPECT_EQ(RingOf(3).ShownNs(4, Edge::kStart), std::nullopt);
  EXPECT_EQ(RingOf(3).Shown(0, Edge::kStart, 1000), nullptr);
}

TEST(WorkRing, ShowsTheNewerItemAfterSixtyFourMore) {
  const WorkRing ring = RingOf(70);
  EXPECT_EQ(ring.Shown(2, Edge::kStart, 6599)->start_ns, 200);
  EXPECT_EQ(ring.Shown(2, Edge::kStart, 6600)->start_ns, 6600);
  EXPECT_EQ(ring.Shown(2, Edge::kStop, 6600)->stop_ns, 250);
}

TEST(WorkRing, ShowsOneOfTheLastSixtyFourToAHostThatIsFarBehind) {
  const WorkRing ring = RingOf(1000, 100000);
  EXPECT_LE(ring.ShownNs(3, Edge::kStart), 0);
  EXPECT_EQ(ring.Shown(3, Edge::kStart, 200000)->start_ns, 100 * (3 + 15 * 64));
}

TEST(WorkRing, NeverShowsTheStopOfAKernelThatHangs) {
  WorkRing ring;
  ring.Run({100, WorkItem::kNever}, 0);
  EXPECT_EQ(ring.ShownNs(1, Edge::kStart), 100);
  EXPECT_EQ(ring.ShownNs(1, Edge::kStop), std::nullopt);
}

}  // namespace
}  // namespace nccl_exporter::sim
