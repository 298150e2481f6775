// SPDX-License-Identifier: Apache-2.0
// The messages of the protobuf exposition, read back by protoc's code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "exporter/exposition/encoder.h"
#include "exporter/series/metric_filter.h"
#include "exporter/testing/decoded_families.h"
#include "exporter/testing/one_family.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr int64_t kCreatedNs = 1700000000250000000;

std::vector<decoded::MetricFamily> Families(const Exposition& exposition) {
  std::string body;
  EncodeProtobuf(exposition, body);
  return DecodedFamilies(body);
}

decoded::MetricFamily OnlyFamily(const Exposition& exposition) {
  const auto families = Families(exposition);
  EXPECT_EQ(families.size(), 1u);
  return families.at(0);
}

std::vector<std::pair<std::string, std::string>> LabelsOf(const decoded::Metric& metric) {
  std::vector<std::pair<std::string, std::string>> labels;
  for (const decoded::LabelPair& label : metric.label())
    labels.emplace_back(label.name(), label.value());
  return labels;
}

constexpr std::array<uint64_t, 6> kCounts{1, 2, 3, 0, 5, 6};

decoded::Histogram OneHistogram(std::optional<HistogramScale::Native> native,
                                std::span<const uint64_t> counts = kCounts) {
  Exposition exposition = OneFamily("h_seconds", MetricType::kHistogram, "seconds",
                                    {.group_labels = 1,
                                     .variable_labels = 2,
                                     .value = 7.5,
                                     .counts = counts,
                                     .created_realtime_ns = kCreatedNs});
  exposition.families[0].scale = {.native = native, .bounds = {0.5, 1, 4}, .ends = {1, 3, 4}};
  const decoded::MetricFamily family = OnlyFamily(exposition);
  EXPECT_EQ(family.type(), decoded::HISTOGRAM);
  EXPECT_EQ(family.unit(), "seconds");
  return family.metric(0).histogram();
}

TEST(ProtobufEncoderTest, ACounterCarriesWhatItIsAndSinceWhenItCounts) {
  const decoded::MetricFamily family =
      OnlyFamily(OneFamily("c_bytes_total", MetricType::kCounter, "bytes",
                           {.group_labels = 1,
                            .variable_labels = 2,
                            .value = 3,
                            .counts = {},
                            .created_realtime_ns = kCreatedNs},
                           "two \"lines\"\n"));
  EXPECT_EQ(family.name(), "c_bytes_total");
  EXPECT_EQ(family.help(), "Help.");
  EXPECT_EQ(family.type(), decoded::COUNTER);
  EXPECT_EQ(family.unit(), "bytes");
  ASSERT_EQ(family.metric_size(), 1);
  EXPECT_THAT(LabelsOf(family.metric(0)),
              ElementsAre(Pair("a", "1"), Pair("b", "two \"lines\"\n"), Pair("own", "x")));
  EXPECT_EQ(family.metric(0).counter().value(), 3);
  EXPECT_EQ(family.metric(0).counter().created_timestamp().seconds(), 1700000000);
  EXPECT_EQ(family.metric(0).counter().created_timestamp().nanos(), 250000000);
}

TEST(ProtobufEncoderTest, ASeriesWithoutATimeOfItsOwnCountsSinceTheDaemonDoes) {
  Exposition exposition =
      OneFamily("c_total", MetricType::kCounter, "",
                {.group_labels = 0, .variable_labels = 0, .value = 0, .counts = {}});
  EXPECT_FALSE(OnlyFamily(exposition).metric(0).counter().has_created_timestamp());
  exposition.created_realtime_ns = kCreatedNs;
  EXPECT_EQ(OnlyFamily(exposition).metric(0).counter().created_timestamp().nanos(), 250000000);
}

TEST(ProtobufEncoderTest, GaugesAndInfoMetricsAreGauges) {
  for (const MetricType type : {MetricType::kGauge, MetricType::kInfo}) {
    const decoded::MetricFamily family = OnlyFamily(
        OneFamily("i_info", type, "",
                  {.group_labels = 0, .variable_labels = 2, .value = -0.5, .counts = {}}));
    EXPECT_EQ(family.type(), decoded::GAUGE);
    EXPECT_EQ(family.metric(0).gauge().value(), -0.5);
    EXPECT_FALSE(family.has_unit());
  }
}

TEST(ProtobufEncoderTest, TellsNoUnitThatTheNameDoesNotEndIn) {
  EXPECT_FALSE(OnlyFamily(OneFamily("megabytes", MetricType::kGauge, "bytes", {})).has_unit());
}

TEST(ProtobufEncoderTest, AHistogramHasItsClassicPartBesideTheNativeOne) {
  const decoded::Histogram histogram =
      OneHistogram(HistogramScale::Native{.schema = 3, .first_bound = -8});
  EXPECT_EQ(histogram.sample_count(), 17u);
  EXPECT_EQ(histogram.sample_sum(), 7.5);
  EXPECT_EQ(histogram.created_timestamp().seconds(), 1700000000);

  ASSERT_EQ(histogram.bucket_size(), 3);
  EXPECT_EQ(histogram.bucket(0).cumulative_count(), 1u);
  EXPECT_EQ(histogram.bucket(0).upper_bound(), 0.5);
  EXPECT_EQ(histogram.bucket(1).cumulative_count(), 6u);
  EXPECT_EQ(histogram.bucket(2).cumulative_count(), 6u);
  EXPECT_EQ(histogram.bucket(2).upper_bound(), 4);

  EXPECT_EQ(histogram.schema(), 3);
  EXPECT_EQ(histogram.zero_threshold(), 0.5);
  EXPECT_EQ(histogram.zero_count(), 1u);
  EXPECT_THAT(NativeBuckets(histogram),
              ElementsAre(Pair(-7, 2), Pair(-6, 3), Pair(-4, 5), Pair(-3, 6)));
}

TEST(ProtobufEncoderTest, AnEmptyHistogramIsKnownAsNativeByASpan) {
  constexpr std::array<uint64_t, 6> kNothing{};
  const decoded::Histogram histogram =
      OneHistogram(HistogramScale::Native{.schema = 3, .first_bound = -8}, kNothing);
  EXPECT_EQ(histogram.sample_count(), 0u);
  ASSERT_EQ(histogram.positive_span_size(), 1);
  EXPECT_EQ(histogram.positive_span(0).offset(), 0);
  EXPECT_EQ(histogram.positive_span(0).length(), 0u);
  EXPECT_EQ(histogram.positive_delta_size(), 0);
}

TEST(ProtobufEncoderTest, AHistogramWithoutANativeScaleIsClassicOnly) {
  const decoded::Histogram histogram = OneHistogram({});
  EXPECT_EQ(histogram.bucket_size(), 3);
  EXPECT_FALSE(histogram.has_schema());
  EXPECT_FALSE(histogram.has_zero_threshold());
  EXPECT_EQ(histogram.positive_span_size(), 0);
}

TEST(ProtobufEncoderTest, CarriesCountsOfAnySize) {
  constexpr std::array<uint64_t, 4> kHuge{1ULL << 62, 1ULL << 61, 0, 1};
  const decoded::Histogram histogram =
      OneHistogram(HistogramScale::Native{.schema = 3, .first_bound = 0}, kHuge);
  EXPECT_EQ(histogram.sample_count(), (1ULL << 62) + (1ULL << 61) + 1);
  EXPECT_THAT(NativeBuckets(histogram), ElementsAre(Pair(1, 1ULL << 61), Pair(3, 1)));
}

TEST(ProtobufEncoderTest, LeavesFamiliesWithoutSeriesOut) {
  EXPECT_TRUE(Families(ExpositionOfCatalogue()).empty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
