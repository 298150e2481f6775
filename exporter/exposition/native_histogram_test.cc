// SPDX-License-Identifier: Apache-2.0
// Sparse buckets, compared with the counts that they are made from.
#include "exporter/exposition/native_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "proto/buckets.h"

namespace nccl_exporter::exporter {
namespace {

using Span = NativeHistogram::Span;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr HistogramScale::Native kScale{.schema = 3, .first_bound = 10};

NativeHistogram NativeOf(const std::vector<uint64_t>& counts,
                         HistogramScale::Native scale = kScale) {
  NativeHistogram native;
  native.Set(scale, counts);
  return native;
}

// Counts by bucket index, as a reader of spans and deltas finds them.
std::map<int, uint64_t> Decoded(const NativeHistogram& native) {
  std::map<int, uint64_t> buckets;
  int index = 0;
  int64_t count = 0;
  auto delta = native.deltas.begin();
  for (const Span& span : native.spans) {
    index += span.offset;
    for (uint32_t i = 0; i < span.length; ++i) {
      count += *delta++;
      if (count != 0) buckets[index] = static_cast<uint64_t>(count);
      ++index;
    }
  }
  EXPECT_EQ(delta, native.deltas.end());
  return buckets;
}

TEST(NativeHistogramTest, AnEmptyOneHasNoBuckets) {
  const NativeHistogram native = NativeOf({0, 0, 0});
  EXPECT_EQ(native.schema, 3);
  EXPECT_EQ(native.zero_count, 0u);
  EXPECT_THAT(native.spans, IsEmpty());
  EXPECT_THAT(native.deltas, IsEmpty());
}

TEST(NativeHistogramTest, ACoarserOneMergesWholeBuckets) {
  using Buckets = DurationBuckets;
  std::vector<uint64_t> counts(Buckets::kCount, 1);
  counts[0] = 5;
  for (int halvings = 2; halvings <= 3; ++halvings) {
    const NativeHistogram native = NativeOf(
        counts,
        {.schema = Buckets::kSchema, .first_bound = Buckets::kFirstBound, .halvings = halvings});
    EXPECT_EQ(native.schema, Buckets::kSchema - halvings);
    EXPECT_EQ(native.zero_count, 5u);
    const int width = 1 << halvings;
    std::map<int, uint64_t> expected;
    for (int i = Buckets::kFirstBound / width + 1; i <= Buckets::kLastBound / width; ++i) {
      expected[i] = static_cast<uint64_t>(width);
    }
    expected[Buckets::kLastBound / width + 1] = 1;  // the one of values above all bounds
    EXPECT_EQ(Decoded(native), expected);
  }
}

TEST(NativeHistogramTest, TheLowestCountIsTheZeroBucket) {
  const NativeHistogram native = NativeOf({7, 0, 0}, {.schema = 3, .first_bound = -160});
  EXPECT_EQ(native.zero_count, 7u);
  EXPECT_EQ(native.zero_threshold, std::ldexp(1.0, -20));
  EXPECT_THAT(native.spans, IsEmpty());
}

TEST(NativeHistogramTest, TheHighestCountIsTheBucketAboveTheLastBound) {
  EXPECT_THAT(NativeOf({0, 0, 0, 5}).spans, ElementsAre(Span{13, 1}));
}

TEST(NativeHistogramTest, NeighboursShareASpanAndTellDifferences) {
  const NativeHistogram native = NativeOf({0, 4, 1, 6});
  EXPECT_THAT(native.spans, ElementsAre(Span{11, 3}));
  EXPECT_THAT(native.deltas, ElementsAre(4, -3, 5));
}

TEST(NativeHistogramTest, ANarrowGapIsFilledAndAWideOneStartsASpan) {
  const NativeHistogram narrow = NativeOf({0, 4, 0, 0, 5});
  EXPECT_THAT(narrow.spans, ElementsAre(Span{11, 4}));
  EXPECT_THAT(narrow.deltas, ElementsAre(4, -4, 0, 5));
  const NativeHistogram wide = NativeOf({0, 4, 0, 0, 0, 5});
  EXPECT_THAT(wide.spans, ElementsAre(Span{11, 1}, Span{3, 1}));
  EXPECT_THAT(wide.deltas, ElementsAre(4, 1));
}

TEST(NativeHistogramTest, MayBeFilledAgain) {
  NativeHistogram native = NativeOf({3, 4, 0, 0, 0, 5});
  const std::vector<uint64_t> counts{0, 0, 2};
  native.Set(kScale, counts);
  EXPECT_EQ(native.zero_count, 0u);
  EXPECT_THAT(native.spans, ElementsAre(Span{12, 1}));
  EXPECT_THAT(native.deltas, ElementsAre(2));
}

TEST(NativeHistogramTest, WhatAReaderFindsAreTheCounts) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> counts(BandwidthBuckets::kCount);
    std::map<int, uint64_t> expected;
    for (int i = 0; i < 100; ++i) {
      const size_t index = random() % counts.size();
      const uint64_t more = uint64_t{1} << (random() % 62 / static_cast<unsigned>(round % 8 + 1));
      counts[index] = more;
      if (index != 0) expected[BandwidthBuckets::kFirstBound + static_cast<int>(index)] = more;
    }
    const NativeHistogram native =
        NativeOf(counts, {.schema = 3, .first_bound = BandwidthBuckets::kFirstBound});
    EXPECT_EQ(native.schema, 3);
    EXPECT_EQ(Decoded(native), expected);
  }
}

TEST(NativeHistogramTest, TooManyBucketsAreServedAtHalfTheResolution) {
  const std::vector<uint64_t> counts(DurationBuckets::kCount, 3);
  const NativeHistogram native =
      NativeOf(counts, {.schema = 3, .first_bound = DurationBuckets::kFirstBound});
  EXPECT_EQ(native.schema, 2);
  EXPECT_EQ(native.zero_count, 3u);
  EXPECT_EQ(native.zero_threshold, std::ldexp(1.0, -20)) << "still a bound of the coarser schema";
  const std::map<int, uint64_t> buckets = Decoded(native);
  EXPECT_LE(buckets.size(), kNativeBucketLimit);
  EXPECT_EQ(buckets.begin()->first, -79) << "2^(-80/4) to 2^(-79/4)";
  EXPECT_EQ(buckets.begin()->second, 6u);
  EXPECT_EQ(buckets.rbegin()->first, 41);
  const uint64_t total =
      std::accumulate(buckets.begin(), buckets.end(), uint64_t{0},
                      [](uint64_t sum, const auto& bucket) { return sum + bucket.second; });
  EXPECT_EQ(total, 3u * (counts.size() - 1));
}

TEST(NativeHistogramTest, ManyBucketsWithinTheLimitKeepTheirResolution) {
  std::vector<uint64_t> counts(DurationBuckets::kCount);
  std::fill_n(counts.begin() + 1, kNativeBucketLimit, 1);
  EXPECT_EQ(NativeOf(counts).schema, 3);
  counts.back() = 1;
  EXPECT_EQ(NativeOf(counts).schema, 2);
}

}  // namespace
}  // namespace nccl_exporter::exporter
