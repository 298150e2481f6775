// SPDX-License-Identifier: Apache-2.0
#include "plugin/call_clock.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kStartNs = 5'000'000'000;
constexpr uint64_t kUnitNs = CallClock::kUnitNs;
constexpr uint64_t kHalfUnits = uint64_t{1} << 42;  // 52 days

class CallClockTest : public testing::Test {
 protected:
  void SetUp() override { clock_.Open(kStartNs); }

  // The payload of a call that is made that many units after the start.
  uint64_t CallAt(uint64_t units) { return clock_.PayloadOf(kStartNs + units * kUnitNs); }
  // Units after the start, as the payload says; ~0 if that is not known.
  uint64_t UnitsOf(uint64_t payload) {
    uint64_t call_ns = 0;
    return clock_.TimeOf(payload, &call_ns) ? (call_ns - kStartNs) / kUnitNs : ~uint64_t{0};
  }

  CallClock clock_{};
};

TEST_F(CallClockTest, GivesTheTimeOfACallInWholeUnitsRoundedDown) {
  const uint64_t payload = clock_.PayloadOf(kStartNs + 7 * kUnitNs + kUnitNs - 1);
  uint64_t call_ns = 0;
  ASSERT_TRUE(clock_.TimeOf(payload, &call_ns));
  EXPECT_EQ(call_ns, kStartNs + 7 * kUnitNs);
}

TEST_F(CallClockTest, GivesTheTimeOfACallOfTheHalfBefore) {
  const uint64_t earlier = CallAt(kHalfUnits - 1);
  const uint64_t later = CallAt(kHalfUnits);
  EXPECT_EQ(UnitsOf(earlier), kHalfUnits - 1);
  EXPECT_EQ(UnitsOf(later), kHalfUnits);
}

TEST_F(CallClockTest, GivesTimesAfterPayloadsHaveComeRound) {
  const uint64_t earlier = CallAt(2 * kHalfUnits - 1);
  const uint64_t later = CallAt(2 * kHalfUnits + 3);
  EXPECT_EQ(later, 3u) << "has come round";
  EXPECT_EQ(UnitsOf(earlier), 2 * kHalfUnits - 1);
  EXPECT_EQ(UnitsOf(later), 2 * kHalfUnits + 3);
}

TEST_F(CallClockTest, GivesNoTimeForAHalfBeforeTheStart) {
  CallAt(1);
  EXPECT_EQ(UnitsOf(kHalfUnits + 1), ~uint64_t{0});
}

}  // namespace
}  // namespace nccl_exporter::plugin
