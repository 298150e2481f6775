// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/gpu_clock_bounds.h"

#include <gtest/gtest.h>

namespace nccl_exporter::collector {
namespace {

// Epoch of a GPU's clock, which may show the time of day.
constexpr uint64_t kEpoch = 1'700'000'000'000'000'000;
constexpr uint64_t kBoot = 5'000'000'000'000;  // CLOCK_MONOTONIC at that moment
constexpr int64_t kTick = GpuClockBounds::kTickNs;

// Learns from an operation that started `start_ns` after that moment and took 1 ms.
void Learn(GpuClockBounds& bounds, uint64_t start_ns, uint64_t called_before_ns,
           uint64_t delivered_after_ns) {
  bounds.Learn(kBoot + start_ns - called_before_ns, kEpoch + start_ns,
               kEpoch + start_ns + 1'000'000, kBoot + start_ns + 1'000'000 + delivered_after_ns);
}

TEST(GpuClockBounds, NothingIsKnownBeforeTheFirstOperation) {
  EXPECT_FALSE(GpuClockBounds().RangeOf(kEpoch, kBoot));
}

TEST(GpuClockBounds, OneOperationBoundsTheClockFromBothSides) {
  GpuClockBounds bounds;
  Learn(bounds, 0, 10'000, 20'000);
  const std::optional<TimeRange> range = bounds.RangeOf(kEpoch, kBoot + 1'020'000);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->least_ns, static_cast<int64_t>(kBoot) - 10'000 - kTick - 200)
      << "bound at the start, 1 ms ago";
  EXPECT_EQ(range->most_ns, static_cast<int64_t>(kBoot) + 20'000 + kTick);
}

TEST(GpuClockBounds, TheClosestOperationsCount) {
  GpuClockBounds bounds;
  Learn(bounds, 0, 10'000, 900'000);
  Learn(bounds, 2'000'000, 800'000, 20'000);
  const std::optional<TimeRange> range = bounds.RangeOf(kEpoch + 2'000'000, kBoot + 3'020'000);
  ASSERT_TRUE(range);
  EXPECT_LT(range->most_ns - range->least_ns, 10'000 + 20'000 + 2 * kTick + 2'000);
  EXPECT_LE(range->least_ns, static_cast<int64_t>(kBoot) + 2'000'000);
  EXPECT_GE(range->most_ns, static_cast<int64_t>(kBoot) + 2'000'000);
}

TEST(GpuClockBounds, LoosenWithTheirDistanceInTime) {
  GpuClockBounds bounds;
  Learn(bounds, 0, 10'000, 20'000);
  const auto width = [&](uint64_t about_ns) {
    const std::optional<TimeRange> range = bounds.RangeOf(kEpoch, about_ns);
    return range->most_ns - range->least_ns;
  };
  const int64_t now = width(kBoot + 1'020'000);
  EXPECT_EQ(width(kBoot + 1'020'000 + 1'000'000'000) - now, 400'000)
      << "200 us a second on either side";
  EXPECT_EQ(width(kBoot + 1'020'000 - 1'000'000'000) - now, 400'000 - 400)
      << "and towards the past, from the start";
}

TEST(GpuClockBounds, WithoutACallThereIsNoRangeUntilOneIsKnown) {
  GpuClockBounds bounds;
  bounds.Learn(std::nullopt, kEpoch, kEpoch + 1'000'000, kBoot + 1'020'000);
  EXPECT_FALSE(bounds.RangeOf(kEpoch, kBoot));
  Learn(bounds, 2'000'000, 10'000, 500'000);
  ASSERT_TRUE(bounds.RangeOf(kEpoch, kBoot));
}

TEST(GpuClockBounds, AClockThatIsSetBeginsAnew) {
  GpuClockBounds bounds;
  Learn(bounds, 0, 10'000, 20'000);
  const uint64_t jump = 50'000'000;
  bounds.Learn(kBoot + 9'990'000, kEpoch + 10'000'000 + jump, kEpoch + 11'000'000 + jump,
               kBoot + 11'020'000);
  const std::optional<TimeRange> range =
      bounds.RangeOf(kEpoch + 10'000'000 + jump, kBoot + 11'020'000);
  ASSERT_TRUE(range);
  EXPECT_LE(range->least_ns, static_cast<int64_t>(kBoot) + 10'000'000);
  EXPECT_GE(range->most_ns, static_cast<int64_t>(kBoot) + 10'000'000);
}

TEST(GpuClockBounds, AnyNumbersAreTaken) {
  constexpr uint64_t kNumbers[] = {0, 1, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX};
  for (const uint64_t call : kNumbers) {
    for (const uint64_t start : kNumbers) {
      for (const uint64_t delivered : kNumbers) {
        GpuClockBounds bounds;
        bounds.Learn(call, start, start + 1, delivered);
        bounds.Learn(delivered, call, start, start);
        const std::optional<TimeRange> range = bounds.RangeOf(start, call);
        if (!range) continue;
        EXPECT_LE(range->Middle(), std::max(range->most_ns, range->least_ns));
        EXPECT_GE(range->Middle(), std::min(range->most_ns, range->least_ns));
      }
    }
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
