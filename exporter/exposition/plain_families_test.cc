// SPDX-License-Identifier: Apache-2.0
// The reader of a scrape: what the encoder writes, and bytes that are none.
#include "exporter/exposition/plain_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/protobuf_wire.h"
#include "exporter/testing/one_family.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;

constexpr int64_t kCreatedNs = 1700000000250000000;
const std::vector<uint64_t> kCounts{4, 0, 1, 2, 0, 0, 0, 3};  // 10 in all

std::string Encoded(const Exposition& exposition) {
  std::string bytes;
  EncodeProtobuf(exposition, bytes);
  return bytes;
}

Exposition OneHistogram() {
  Exposition exposition = OneFamily("d_seconds", MetricType::kHistogram, "seconds",
                                    {.group_labels = 1,
                                     .variable_labels = 2,
                                     .value = 5.5,
                                     .counts = kCounts,
                                     .created_realtime_ns = kCreatedNs});
  exposition.families[0].scale = {.native = HistogramScale::Native{.schema = 0, .first_bound = 0},
                                  .bounds = {2, 8},
                                  .ends = {2, 4}};
  return exposition;
}

TEST(PlainFamiliesTest, AHistogramHasItsSumAndBothKindsOfBuckets) {
  const auto families = ParseFamilies(Encoded(OneHistogram()));
  ASSERT_TRUE(families);
  ASSERT_EQ(families->size(), 1u);
  EXPECT_EQ(families->front().name, "d_seconds");
  EXPECT_EQ(families->front().help, "Help.");
  EXPECT_EQ(families->front().type, MetricType::kHistogram);
  const PlainSample& sample = families->front().samples.at(0);
  EXPECT_THAT(sample.labels, ElementsAre(Label{"a", "1"}, Label{"b", "2"}, Label{"own", "x"}));
  EXPECT_EQ(sample.value, 10);
  EXPECT_EQ(sample.sum, 5.5);
  EXPECT_EQ(sample.created_realtime_ns, kCreatedNs);
  std::vector<double> bounds, counts;
  for (const PlainBucket& bucket : sample.buckets) {
    bounds.push_back(bucket.bound);
    counts.push_back(static_cast<double>(bucket.count));
  }
  EXPECT_THAT(bounds, ElementsAre(2, 8, INFINITY));
  EXPECT_THAT(counts, ElementsAre(4, 7, 10));
  ASSERT_TRUE(sample.native);
  EXPECT_EQ(sample.native->zero_count, 4u);
  EXPECT_EQ(sample.native->zero_threshold, 1);
  EXPECT_THAT(sample.native->deltas, ElementsAre(1, 1, 1)) << "the third has 3: 2 and 1";
}

TEST(PlainFamiliesTest, CountersAndGaugesHaveTheirValue) {
  for (const MetricType type : {MetricType::kCounter, MetricType::kGauge}) {
    const auto families = ParseFamilies(Encoded(OneFamily(
        "a", type, "", {.value = -1.5, .counts = {}, .created_realtime_ns = kCreatedNs})));
    ASSERT_TRUE(families);
    EXPECT_EQ(families->front().type, type);
    const PlainSample& sample = families->front().samples.at(0);
    EXPECT_EQ(sample.value, -1.5);
    EXPECT_EQ(sample.created_realtime_ns, type == MetricType::kCounter ? kCreatedNs : 0);
    EXPECT_FALSE(sample.native);
  }
}

TEST(PlainFamiliesTest, ABeginningIsNotUnderstood) {
  const std::string whole = Encoded(OneHistogram());
  for (size_t size = 1; size < whole.size(); ++size)
    EXPECT_FALSE(ParseFamilies(whole.substr(0, size))) << size;
  EXPECT_EQ(ParseFamilies(whole + whole)->size(), 2u);
  EXPECT_TRUE(ParseFamilies("")->empty());
}

TEST(PlainFamiliesTest, PartsAreCounted) {
  // A family, a series, 3 labels, 2 bounds, 2 spans, 3 filled buckets of the native ones.
  constexpr size_t kParts = 12;
  EXPECT_TRUE(ParseFamilies(Encoded(OneHistogram()), kParts));
  EXPECT_FALSE(ParseFamilies(Encoded(OneHistogram()), kParts - 1));
  EXPECT_FALSE(ParseFamilies(std::string(11, '\0'), 10)) << "empty families";
}

// A family with one histogram.
std::string FamilyWith(const std::string& histogram) {
  using namespace wire;
  std::string metric, family, out;
  AppendBytes(7, histogram, metric);
  AppendBytes(1, "h", family);
  AppendUint(3, 4, family);
  AppendBytes(4, metric, family);
  AppendBytes(1, family, out);
  return out.substr(1);  // without the tag: a length and the message
}

std::string Bucket(uint64_t count, double bound) {
  std::string text, field;
  wire::AppendUint(1, count, text);
  wire::AppendDouble(2, bound, text);
  wire::AppendBytes(3, text, field);
  return field;
}

TEST(PlainFamiliesTest, ClassicBucketsRise) {
  const std::string nine("\x08\x09", 2), infinite = Bucket(9, INFINITY);
  EXPECT_TRUE(ParseFamilies(FamilyWith(nine + Bucket(4, 1) + Bucket(5, 2) + infinite)));
  for (const std::string& wrong :
       {nine + Bucket(5, 1) + Bucket(4, 2), nine + Bucket(4, 2) + Bucket(5, 1),
        nine + Bucket(4, 1) + Bucket(5, 1), nine + Bucket(4, NAN), nine + Bucket(10, 1),
        Bucket(1, 1)})
    EXPECT_FALSE(ParseFamilies(FamilyWith(wrong)));
}

std::string Native(int64_t offset, uint64_t length) {
  std::string text;
  wire::AppendSint(5, 0, text);
  for (int i = 0; i < 2; ++i) wire::AppendSint(13, 1, text);
  for (const auto& [begin, size] : {std::pair{int64_t{0}, uint64_t{1}}, {offset, length}}) {
    std::string span;
    wire::AppendSint(1, begin, span);
    wire::AppendUint(2, size, span);
    wire::AppendBytes(12, span, text);
  }
  return FamilyWith(text);
}

TEST(PlainFamiliesTest, NativeBucketsAreThoseOfTheirSpans) {
  EXPECT_TRUE(ParseFamilies(Native(5, 1)));
  EXPECT_TRUE(ParseFamilies(Native(kMostNativeBuckets - 2, 1)));
  EXPECT_FALSE(ParseFamilies(Native(kMostNativeBuckets - 1, 1)));
  EXPECT_FALSE(ParseFamilies(Native(int64_t{1} << 31, 1)));
  EXPECT_FALSE(ParseFamilies(Native(int64_t{1} << 32, 1)));
  EXPECT_FALSE(ParseFamilies(Native(-3, 1)));
  EXPECT_FALSE(ParseFamilies(Native(1, uint64_t{1} << 31)));
  EXPECT_FALSE(ParseFamilies(Native(1, 2))) << "more than there are counts";
  EXPECT_FALSE(ParseFamilies(Native(1, 0))) << "less";
}

TEST(PlainFamiliesTest, OtherTypesAndTextsAreNotUnderstood) {
  const auto family = [](const std::string& name, uint64_t type) {
    std::string text, out;
    wire::AppendBytes(1, name, text);
    wire::AppendUint(3, type, text);
    wire::AppendBytes(1, text, out);
    return out.substr(1);
  };
  EXPECT_TRUE(ParseFamilies(family("a", 0)));
  for (const uint64_t type : {2, 3, 5}) EXPECT_FALSE(ParseFamilies(family("a", type))) << type;
  EXPECT_FALSE(ParseFamilies(family("\xff", 0)));
}

}  // namespace
}  // namespace nccl_exporter::exporter
