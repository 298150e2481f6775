// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "plugin/network/network_windows.h"

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;
constexpr uint64_t kSomeDay = 1'700'000'000 * kSecond;
constexpr TimeWindows kTenth{.period_ns = 2 * kSecond, .share_ppm = 100'000};

// Looks at the windows from edge to edge.
template <typename Visit>
void WalkEdges(const TimeWindows& windows, uint64_t from_ns, uint64_t to_ns, Visit visit) {
  for (uint64_t now_ns = from_ns; now_ns < to_ns;) {
    const WindowPhase phase = PhaseAt(windows, now_ns);
    ASSERT_GT(phase.edge_ns, now_ns);
    visit(now_ns, phase);
    now_ns = phase.edge_ns;
  }
}

TEST(PhaseAt, IsOpenForTheShareOfTimeThatIsAskedFor) {
  for (const uint32_t window_ms : {20u, 200u, 1000u, 2000u}) {
    const TimeWindows windows{.period_ns = 2 * kSecond, .share_ppm = window_ms * 500};
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
  WalkEdges(kTenth, kSomeDay, kSomeDay + 200 * kSecond,
            [&](uint64_t now_ns, const WindowPhase& phase) {
              for (const uint64_t at_ns :
                   {now_ns, now_ns + (phase.edge_ns - now_ns) / 2, phase.edge_ns - 1}) {
                EXPECT_EQ(PhaseAt(kTenth, at_ns).is_open, phase.is_open) << at_ns;
              }
            });
}

TEST(PhaseAt, MeetsEveryMomentOfAPeriodAlike) {
  std::array<int, 20> met{};
  constexpr int kPeriods = 20'000;
  for (uint64_t i = 0; i < kPeriods * met.size(); ++i) {
    met[i % met.size()] +=
        PhaseAt(kTenth, kSomeDay + i * kTenth.period_ns / met.size()).is_open ? 1 : 0;
  }
  for (const int count : met) EXPECT_NEAR(count, kPeriods / 10, kPeriods / 100);
}

TEST(PhaseAt, IsDefinedFromTheEpochOn) {
  EXPECT_GT(PhaseAt(kTenth, 0).edge_ns, 0u);
  EXPECT_TRUE(PhaseAt({.period_ns = kSecond, .share_ppm = kWholeDutyPpm}, kSomeDay).is_open);
}

}  // namespace
}  // namespace nccl_exporter::plugin
