// SPDX-License-Identifier: Apache-2.0
#include "proto/buckets.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nccl_exporter {
namespace {

template <typename Range>
class BucketRangeTest : public testing::Test {};
using Ranges = testing::Types<DurationBuckets, BandwidthBuckets>;
TYPED_TEST_SUITE(BucketRangeTest, Ranges);

TYPED_TEST(BucketRangeTest, FloorsAreThoseOfTheExactBounds) {
  for (int i = 0; i < TypeParam::kBoundCount; ++i) {
    const long double exact = static_cast<long double>(TypeParam::kUnitScale) *
                              std::exp2((TypeParam::kFirstBound + i) / 8.0L);
    EXPECT_EQ(TypeParam::kFloors[i], static_cast<uint64_t>(exact)) << i;
    // Far enough from a whole number for 64 bit of mantissa to decide, unless it is one.
    const long double distance = std::abs(exact - std::round(exact));
    if ((TypeParam::kFirstBound + i) % 8 != 0) {
      EXPECT_GT(distance, 1e-6L) << i;
    }
  }
}

TYPED_TEST(BucketRangeTest, UpperBoundsAreTheNearestDoubles) {
  for (int i = 0; i < TypeParam::kBoundCount; ++i) {
    EXPECT_EQ(TypeParam::UpperBound(i),
              static_cast<double>(std::exp2((TypeParam::kFirstBound + i) / 8.0L)))
        << i;
  }
}

TYPED_TEST(BucketRangeTest, FindsTheBucketOnBothSidesOfEveryBound) {
  for (int i = 0; i < TypeParam::kBoundCount; ++i) {
    EXPECT_EQ(TypeParam::IndexOf(TypeParam::kFloors[i]), i);
    EXPECT_EQ(TypeParam::IndexOf(TypeParam::kFloors[i] + 1), i + 1);
  }
  EXPECT_EQ(TypeParam::IndexOf(0), 0);
  EXPECT_EQ(TypeParam::IndexOf(~uint64_t{0}), TypeParam::kCount - 1);
}

TYPED_TEST(BucketRangeTest, AgreesWithALinearSearchEverywhere) {
  uint64_t random = 42;
  for (int i = 0; i < 200'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const uint64_t value = random >> (random % 64);
    int linear = 0;
    while (linear < TypeParam::kBoundCount && value > TypeParam::kFloors[linear]) ++linear;
    ASSERT_EQ(TypeParam::IndexOf(value), linear) << value;
  }
}

TEST(ClassicBounds, AreNativeBoundsInAscendingOrder) {
  const auto check = [](const auto& bounds, int first, int last) {
    for (size_t i = 0; i < bounds.size(); ++i) {
      EXPECT_GE(bounds[i], first);
      EXPECT_LE(bounds[i], last);
      if (i > 0) {
        EXPECT_GT(bounds[i], bounds[i - 1]);
      }
    }
  };
  check(kClassicDurationBounds, DurationBuckets::kFirstBound, DurationBuckets::kLastBound);
  check(kClassicBandwidthBounds, BandwidthBuckets::kFirstBound, BandwidthBuckets::kLastBound);
}

}  // namespace
}  // namespace nccl_exporter
