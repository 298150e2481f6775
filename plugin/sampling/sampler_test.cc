// SPDX-License-Identifier: Apache-2.0
#include "plugin/sampling/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;
constexpr uint64_t kSomeDay = 1'700'000'000 * kSecond;
constexpr int kTimed = 2 | 4 | 64;
constexpr int kUntimed = 2 | 4 | 8;
constexpr int kFrozen = 256;

// Looks at the windows from edge to edge.
template <typename Visit>
void WalkEdges(const SamplingWindows& windows, uint64_t from_ns, uint64_t to_ns, Visit visit) {
  for (uint64_t now_ns = from_ns; now_ns < to_ns;) {
    const WindowPhase phase = PhaseAt(windows, now_ns);
    ASSERT_GT(phase.edge_ns, now_ns);
    visit(now_ns, phase);
    now_ns = phase.edge_ns;
  }
}

TEST(PhaseAt, IsOpenForTheShareOfTimeThatIsAskedFor) {
  for (const uint64_t window_ms : {20u, 200u, 1000u, 2000u}) {
    const SamplingWindows windows{.period_ns = 2 * kSecond, .window_ns = window_ms * kMs};
    uint64_t open_ns = 0;
    const uint64_t length_ns = 20'000 * kSecond;
    WalkEdges(windows, kSomeDay, kSomeDay + length_ns,
              [&](uint64_t now_ns, const WindowPhase& phase) {
                if (phase.is_open) open_ns += phase.edge_ns - now_ns;
              });
    const double duty = static_cast<double>(window_ms) / 2000;
    // Windows of neighbouring periods may overlap, so that the share is at most duty^2 / 6 less.
    EXPECT_NEAR(static_cast<double>(open_ns) / static_cast<double>(length_ns), duty,
                duty * duty / 6 + 0.003);
  }
}

TEST(PhaseAt, TellsTheSameBetweenTwoEdges) {
  const SamplingWindows windows;
  WalkEdges(windows, kSomeDay, kSomeDay + 200 * kSecond,
            [&](uint64_t now_ns, const WindowPhase& phase) {
              for (const uint64_t at_ns :
                   {now_ns, now_ns + (phase.edge_ns - now_ns) / 2, phase.edge_ns - 1}) {
                EXPECT_EQ(PhaseAt(windows, at_ns).is_open, phase.is_open) << at_ns;
              }
            });
}

TEST(PhaseAt, MeetsEveryMomentOfAPeriodAlike) {
  const SamplingWindows windows;
  std::array<int, 20> met{};
  constexpr int kPeriods = 20'000;
  for (uint64_t i = 0; i < kPeriods * met.size(); ++i) {
    met[i % met.size()] +=
        PhaseAt(windows, kSomeDay + i * windows.period_ns / met.size()).is_open ? 1 : 0;
  }
  for (const int count : met) EXPECT_NEAR(count, kPeriods / 10, kPeriods / 100);
}

TEST(PhaseAt, IsDefinedFromTheEpochOn) {
  EXPECT_GT(PhaseAt({}, 0).edge_ns, 0u);
  EXPECT_TRUE(PhaseAt({.period_ns = kSecond, .window_ns = kSecond}, kSomeDay).is_open);
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest() : sampler_(*static_cast<Sampler*>(std::calloc(1, sizeof(Sampler)))) {
    sampler_.Open(&mask_, kTimed, {}, 600 * kSecond, kSecond);
  }
  ~SamplerTest() override { std::free(&sampler_); }

  // A change at a moment when the windows are open, or closed.
  void ChangeWhen(bool is_open, bool is_any_group_open = false) {
    uint64_t now_ns = kSomeDay;
    while (PhaseAt({}, now_ns).is_open != is_open) now_ns = PhaseAt({}, now_ns).edge_ns;
    ASSERT_TRUE(sampler_.BeginChange());
    sampler_.EndChange(is_any_group_open, {700 * kSecond, now_ns});
  }

  int mask_ = 0;
  Sampler& sampler_;
};

TEST_F(SamplerTest, TimesEverythingUntilItHasLearned) {
  EXPECT_EQ(mask_, kTimed);
  EXPECT_EQ(sampler_.state(), SamplingState::kLearning);
  EXPECT_EQ(sampler_.DutyPpm(), kWholeDutyPpm);
  EXPECT_FALSE(sampler_.IsDue(600 * kSecond));
  EXPECT_TRUE(sampler_.IsDue(601 * kSecond));
}

TEST_F(SamplerTest, FollowsTheWindows) {
  ChangeWhen(false);
  EXPECT_EQ(mask_, kUntimed);
  EXPECT_EQ(sampler_.state(), SamplingState::kWindows);
  EXPECT_EQ(sampler_.DutyPpm(), 100'000u);
  EXPECT_FALSE(sampler_.IsDue(700 * kSecond));
  EXPECT_TRUE(sampler_.IsDue(702 * kSecond));
  ChangeWhen(true);
  EXPECT_EQ(mask_, kTimed);
}

TEST_F(SamplerTest, LeavesTheBitOfNetworkTimingAsItIs) {
  constexpr int kNetwork = 16;
  for (const int network : {0, kNetwork}) {
    for (const FreezingCall call :
         {FreezingCall::kSend, FreezingCall::kRecv, FreezingCall::kOther}) {
      sampler_.Open(&mask_, kTimed, {}, 0, kSecond);
      mask_ |= network;
      ChangeWhen(false);
      EXPECT_EQ(mask_, kUntimed | network);
      sampler_.KeepMask();
      EXPECT_EQ(mask_, kUntimed | network);
      ChangeWhen(true);
      EXPECT_EQ(mask_, kTimed | network);
      sampler_.Freeze(call, 1);
      EXPECT_EQ(mask_ & (kNetwork | kFrozen), network | kFrozen);
      mask_ ^= kNetwork;
      ChangeWhen(false);
      EXPECT_TRUE(sampler_.IsFrozen()) << "still";
    }
  }
}

TEST_F(SamplerTest, WaitsWhileAGroupIsOpen) {
  ChangeWhen(false, true);
  EXPECT_EQ(mask_, kTimed);
  EXPECT_EQ(sampler_.state(), SamplingState::kLearning);
  EXPECT_TRUE(sampler_.IsDue(700 * kSecond + 1 * kMs));
}

TEST_F(SamplerTest, LetsOneThreadChangeAtATime) {
  ASSERT_TRUE(sampler_.BeginChange());
  EXPECT_FALSE(sampler_.BeginChange());
  sampler_.EndChange(false, {700 * kSecond, kSomeDay});
  EXPECT_TRUE(sampler_.BeginChange());
}

TEST_F(SamplerTest, FreezesTheMaskAsItStandsWhereNoChangeLiesBetween) {
  for (const FreezingCall call : {FreezingCall::kSend, FreezingCall::kRecv, FreezingCall::kOther}) {
    for (const bool is_open : {false, true}) {
      sampler_.Open(&mask_, kTimed, {}, 0, kSecond);
      ChangeWhen(is_open);
      EXPECT_TRUE(sampler_.Freeze(call, sampler_.changes()));
      EXPECT_EQ(mask_, (is_open ? kTimed : kUntimed) | kFrozen);
      EXPECT_EQ(sampler_.DutyPpm(), is_open ? kWholeDutyPpm : 0);
    }
  }
}

TEST_F(SamplerTest, ChoosesWhatSuitsBothValuesWhereAChangeLiesBetween) {
  struct Case {
    FreezingCall call;
    int mask;
  };
  for (const Case& c : {Case{FreezingCall::kSend, kTimed}, Case{FreezingCall::kRecv, kUntimed}}) {
    for (const bool is_open : {false, true}) {
      sampler_.Open(&mask_, kTimed, {}, 0, kSecond);
      const uint64_t before = sampler_.changes();
      ChangeWhen(is_open);
      EXPECT_TRUE(sampler_.Freeze(c.call, before));
      EXPECT_EQ(mask_, c.mask | kFrozen);
    }
  }
}

TEST_F(SamplerTest, LeavesTheMaskOfACapturedCallAsItStandsInAnyCase) {
  for (const bool is_open : {false, true}) {
    sampler_.Open(&mask_, kTimed, {}, 0, kSecond);
    const uint64_t before = sampler_.changes();
    ChangeWhen(is_open);
    EXPECT_TRUE(sampler_.Freeze(FreezingCall::kOther, before));
    EXPECT_EQ(mask_, (is_open ? kTimed : kUntimed) | kFrozen);
  }
}

TEST_F(SamplerTest, TakesAChangeInProgressForOneThatLiesBetween) {
  ASSERT_TRUE(sampler_.BeginChange());
  EXPECT_TRUE(sampler_.Freeze(FreezingCall::kRecv, sampler_.changes()));
  EXPECT_EQ(mask_, kUntimed | kFrozen);
  sampler_.EndChange(false, {700 * kSecond, kSomeDay});
  EXPECT_EQ(mask_, kUntimed | kFrozen)
      << "a change that was under way does not touch a frozen mask";
}

TEST_F(SamplerTest, FreezesOnce) {
  EXPECT_TRUE(sampler_.Freeze(FreezingCall::kSend, sampler_.changes()));
  EXPECT_FALSE(sampler_.Freeze(FreezingCall::kRecv, sampler_.changes()));
  EXPECT_EQ(sampler_.state(), SamplingState::kFrozen);
  EXPECT_FALSE(sampler_.IsDue(1'000'000 * kSecond));
  ChangeWhen(false);
  EXPECT_EQ(mask_, kTimed | kFrozen);
}

TEST_F(SamplerTest, LeavesAMaskAloneThatSomebodyElseHasSet) {
  mask_ = 1;
  ChangeWhen(false);
  EXPECT_EQ(mask_, 1);
  EXPECT_FALSE(sampler_.IsDue(1'000'000 * kSecond));
  EXPECT_FALSE(sampler_.Freeze(FreezingCall::kSend, sampler_.changes()));
  EXPECT_EQ(mask_, 1);
}

TEST_F(SamplerTest, KeepsItsMaskAtLaterInits) {
  ChangeWhen(false);
  sampler_.KeepMask();
  EXPECT_EQ(mask_, kUntimed);
  mask_ = 0;  // nobody's
  sampler_.KeepMask();
  EXPECT_EQ(mask_, kTimed | kFrozen);
}

}  // namespace
}  // namespace nccl_exporter::plugin
