// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_windows.h"

#include <gtest/gtest.h>

#include "plugin/testing/scripted_clock.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int kStepBit = 16;
constexpr TimeWindows kTenth{.period_ns = 2'000'000'000, .share_ppm = 100'000};

class NetworkWindowsTest : public testing::Test {
 protected:
  void Open(const TimeWindows& windows) {
    windows_.Open(&mask_, kMask, kStepBit, nullptr, windows);
    windows_.Join();
    windows_.StoreBit();
  }
  static constexpr int kMask = 7;
  int mask_ = kMask;
  NetworkWindows windows_{};
};

TEST_F(NetworkWindowsTest, AreThoseOfTheWallClockAndHaveTheirShareOfTime) {
  Open(kTenth);
  constexpr uint64_t kStepNs = 1'000'000;
  constexpr int kSteps = 400'000;
  int open = 0;
  for (int i = 0; i < kSteps; ++i) {
    ScriptedClock::now_ns += kStepNs;
    windows_.Note(ScriptedClock::now_ns);
    ASSERT_EQ(windows_.IsOpen(), PhaseAt(kTenth, ScriptedClock::now_ns).is_open);
    ASSERT_EQ(mask_, windows_.IsOpen() ? kMask | kStepBit : kMask);
    ASSERT_EQ(windows_.AsksForSteps(), windows_.IsOpen());
    open += windows_.IsOpen() ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(open) / kSteps, 0.1, 0.01);
  EXPECT_EQ(windows_.SharePpm(), 100'000u);
}

// A clock that is set leaves the windows of before for a period at most.
TEST_F(NetworkWindowsTest, AreThoseOfTheWallClockAPeriodAfterItIsSet) {
  Open(kTenth);
  constexpr int64_t kHourNs = 3'600'000'000'000;
  constexpr uint64_t kStepNs = 10'000'000;
  const auto realtime_ns = [] {
    return ScriptedClock::now_ns + static_cast<uint64_t>(ScriptedClock::realtime_offset_ns);
  };
  ScriptedClock::now_ns += 10 * kHourNs;
  for (const int64_t step_ns : {-kHourNs, kHourNs, int64_t{-1'500'000'000}, int64_t{700'000'000}}) {
    windows_.Note(ScriptedClock::now_ns);
    ScriptedClock::realtime_offset_ns += step_ns;
    for (uint64_t ns = 0; ns < 20 * kTenth.period_ns; ns += kStepNs) {
      ScriptedClock::now_ns += kStepNs;
      windows_.Note(ScriptedClock::now_ns);
      if (ns <= kTenth.period_ns) continue;
      ASSERT_EQ(windows_.IsOpen(), PhaseAt(kTenth, realtime_ns()).is_open) << step_ns;
    }
  }
  ScriptedClock::realtime_offset_ns = 0;
}

TEST_F(NetworkWindowsTest, ReadTheWallClockAtTheirEdgesOnly) {
  Open(kTenth);
  constexpr int kPeriods = 100, kStepsInPeriod = 2000;
  const uint64_t before = ScriptedClock::readings;
  for (int i = 0; i < kPeriods * kStepsInPeriod; ++i) {
    ScriptedClock::now_ns += kTenth.period_ns / kStepsInPeriod;
    windows_.Note(ScriptedClock::now_ns);
  }
  EXPECT_LT(ScriptedClock::readings - before, 5u * kPeriods);
}

TEST_F(NetworkWindowsTest, AreOpenForGoodIfTheyFillThePeriod) {
  Open({.period_ns = 1000, .share_ppm = kWholeDutyPpm});
  for (int i = 0; i < 100; ++i) {
    ScriptedClock::now_ns += 999;
    windows_.Note(ScriptedClock::now_ns);
    EXPECT_TRUE(windows_.IsOpen());
    EXPECT_EQ(mask_, kMask | kStepBit);
  }
  EXPECT_EQ(windows_.SharePpm(), 1'000'000u);
}

TEST_F(NetworkWindowsTest, KeepTheBitForACaptureUntilTheNextEdge) {
  Open(kTenth);
  int held = 0;
  for (int i = 0; i < 2000; ++i) {
    ScriptedClock::now_ns += kTenth.window_ns() / 4;
    windows_.Note(ScriptedClock::now_ns);
    EXPECT_FALSE(windows_.IsHeld() && windows_.IsOpen());
    EXPECT_EQ(mask_, windows_.IsOpen() || windows_.IsHeld() ? kMask | kStepBit : kMask);
    if (windows_.IsOpen()) continue;
    held += windows_.IsHeld() ? 1 : 0;
    if (i % 100 == 0) {
      windows_.NoteCapture();
      windows_.NoteCapture();
      EXPECT_TRUE(windows_.IsHeld());
      EXPECT_FALSE(windows_.IsOpen());
      EXPECT_TRUE(windows_.AsksForSteps());
      EXPECT_EQ(mask_, kMask | kStepBit);
    }
  }
  EXPECT_GT(held, 15);
  EXPECT_LT(held, 20 * 80) << "two periods have four edges at most";
}

TEST_F(NetworkWindowsTest, LeaveAMaskThatSomebodyElseHasStored) {
  Open({.period_ns = 1000, .share_ppm = kWholeDutyPpm});
  for (const int foreign : {0, kMask | 32, kMask | 64, kStepBit, 64}) {
    mask_ = foreign;
    windows_.StoreBit();
    EXPECT_EQ(mask_, foreign);
    EXPECT_EQ(windows_.AsksForSteps(), (foreign & kStepBit) != 0) << "as NCCL reads it";
  }
}

TEST_F(NetworkWindowsTest, TakeTheBitAwayWithTheLastCommunicatorAndTouchTheMaskNoMore) {
  Open({.period_ns = 1000, .share_ppm = kWholeDutyPpm});
  windows_.Join();
  windows_.Leave();
  EXPECT_EQ(mask_, kMask | kStepBit);
  windows_.Leave();
  EXPECT_EQ(mask_, kMask);
  EXPECT_FALSE(windows_.IsOpen());
  EXPECT_FALSE(windows_.IsInUse());
  windows_.Note(ScriptedClock::now_ns);
  windows_.StoreBit();
  EXPECT_EQ(mask_, kMask);
}

}  // namespace
}  // namespace nccl_exporter::plugin
