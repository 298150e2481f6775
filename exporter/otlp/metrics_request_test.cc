// SPDX-License-Identifier: Apache-2.0
// Requests, read back by the code that protoc makes of OTLP's messages.
#include "exporter/otlp/metrics_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <metrics_service.pb.h>

#include <string>
#include <vector>

#include "exporter/exposition/encoder.h"
#include "exporter/testing/one_family.h"

namespace nccl_exporter::exporter::otlp {
namespace {

using testing::ElementsAre;

constexpr int64_t kTimeNs = 1700000000500000000, kCreatedNs = 1700000000250000000;
const std::vector<uint64_t> kCounts{4, 0, 1, 2, 0, 0, 0, 3};  // 10 in all

std::vector<PlainFamily> Scrape(const Exposition& exposition) {
  std::string bytes;
  EncodeProtobuf(exposition, bytes);
  return ParseFamilies(bytes).value();
}

// Its first scope. The test fails if a field is not of OTLP.
otlp_decoded::ScopeMetrics Decoded(const std::string& request) {
  otlp_decoded::ExportMetricsServiceRequest message;
  EXPECT_TRUE(message.ParseFromString(request));
  EXPECT_EQ(message.resource_metrics_size(), 1);
  const otlp_decoded::ResourceMetrics& of_resource = message.resource_metrics(0);
  EXPECT_EQ(of_resource.resource().attributes(0).key(), "service.name");
  EXPECT_EQ(of_resource.resource().attributes(0).value().string_value(), "s");
  EXPECT_EQ(of_resource.scope_metrics_size(), 1);
  EXPECT_EQ(message.SerializeAsString().size(), request.size()) << "a field is not known";
  return of_resource.scope_metrics(0);
}

MetricsRequests Requests(HistogramForm form = HistogramForm::kExplicit) {
  return MetricsRequests({{"service.name", "s"}}, form);
}

otlp_decoded::Metric OnlyMetric(const Exposition& exposition,
                                HistogramForm form = HistogramForm::kExplicit) {
  const auto scope = Decoded(Requests(form).Make(Scrape(exposition), kTimeNs));
  EXPECT_EQ(scope.metrics_size(), 1);
  return scope.metrics(0);
}

Exposition OneHistogram(bool is_native) {
  Exposition exposition = OneFamily(
      "d_seconds", MetricType::kHistogram, "seconds",
      {.group_labels = 1, .value = 5.5, .counts = kCounts, .created_realtime_ns = kCreatedNs});
  HistogramScale& scale = exposition.families[0].scale;
  scale.bounds = {2, 8};
  scale.ends = {2, 4};
  if (is_native) scale.native = {.schema = 0, .first_bound = 0, .halvings = 0};
  return exposition;
}

TEST(MetricsRequestTest, ACounterIsAMonotonicCumulativeSum) {
  const auto metric = OnlyMetric(OneFamily("a_seconds_total", MetricType::kCounter, "seconds",
                                           {.group_labels = 1,
                                            .variable_labels = 2,
                                            .value = 1.5,
                                            .counts = {},
                                            .created_realtime_ns = kCreatedNs}));
  EXPECT_EQ(metric.name(), "a_seconds_total");
  EXPECT_EQ(metric.description(), "Help.");
  EXPECT_EQ(metric.unit(), "") << "a receiver would append it";
  EXPECT_EQ(metric.sum().aggregation_temporality(), 2);
  EXPECT_TRUE(metric.sum().is_monotonic());
  const otlp_decoded::NumberDataPoint& point = metric.sum().data_points(0);
  EXPECT_EQ(point.as_double(), 1.5);
  EXPECT_EQ(point.start_time_unix_nano(), static_cast<uint64_t>(kCreatedNs));
  EXPECT_EQ(point.time_unix_nano(), static_cast<uint64_t>(kTimeNs));
  std::vector<std::string> labels;
  for (const otlp_decoded::KeyValue& label : point.attributes())
    labels.push_back(label.key() + '=' + label.value().string_value());
  EXPECT_THAT(labels, ElementsAre("a=1", "b=2", "own=x"));
}

TEST(MetricsRequestTest, GaugesAndInfoMetricsHaveNoStart) {
  for (const MetricType type : {MetricType::kGauge, MetricType::kInfo}) {
    const auto metric = OnlyMetric(
        OneFamily("a_info", type, "", {.value = 1, .counts = {}, .created_realtime_ns = 5}));
    ASSERT_EQ(metric.gauge().data_points_size(), 1);
    EXPECT_EQ(metric.gauge().data_points(0).as_double(), 1);
    EXPECT_EQ(metric.gauge().data_points(0).start_time_unix_nano(), 0u);
  }
}

TEST(MetricsRequestTest, AStartIsNoLaterThanItsPoint) {
  const auto metric =
      OnlyMetric(OneFamily("a_total", MetricType::kCounter, "",
                           {.value = 1, .counts = {}, .created_realtime_ns = kTimeNs + 5}));
  EXPECT_EQ(metric.sum().data_points(0).start_time_unix_nano(), static_cast<uint64_t>(kTimeNs));
}

TEST(MetricsRequestTest, AnExplicitHistogramHasTheClassicBuckets) {
  const auto metric = OnlyMetric(OneHistogram(true));
  EXPECT_EQ(metric.histogram().aggregation_temporality(), 2);
  const otlp_decoded::HistogramDataPoint& point = metric.histogram().data_points(0);
  EXPECT_EQ(point.count(), 10u);
  EXPECT_EQ(point.sum(), 5.5);
  EXPECT_THAT(point.explicit_bounds(), ElementsAre(2, 8));
  EXPECT_THAT(point.bucket_counts(), ElementsAre(4, 3, 3));
  EXPECT_EQ(point.start_time_unix_nano(), static_cast<uint64_t>(kCreatedNs));
}

TEST(MetricsRequestTest, AnExponentialHistogramHasTheNativeBuckets) {
  const auto metric = OnlyMetric(OneHistogram(true), HistogramForm::kExponential);
  EXPECT_EQ(metric.exponential_histogram().aggregation_temporality(), 2);
  const otlp_decoded::ExponentialHistogramDataPoint& point =
      metric.exponential_histogram().data_points(0);
  EXPECT_EQ(point.count(), 10u);
  EXPECT_EQ(point.sum(), 5.5);
  EXPECT_EQ(point.scale(), 0);
  EXPECT_EQ(point.zero_count(), 4u);
  EXPECT_EQ(point.zero_threshold(), 1);
  // counts[2] is native bucket 2, of values in (2, 4]: index 1 of OTLP.
  EXPECT_EQ(point.positive().offset(), 1);
  EXPECT_THAT(point.positive().bucket_counts(), ElementsAre(1, 2, 0, 0, 0, 3));
}

TEST(MetricsRequestTest, WithoutNativeBucketsAHistogramIsExplicit) {
  EXPECT_EQ(
      OnlyMetric(OneHistogram(false), HistogramForm::kExponential).histogram().data_points_size(),
      1);
}

TEST(MetricsRequestTest, AnEmptyHistogramHasNoBuckets) {
  Exposition exposition = OneHistogram(true);
  const std::vector<uint64_t> zeros(kCounts.size());
  exposition.families[0].series[0].counts = zeros;
  const auto metric = OnlyMetric(exposition, HistogramForm::kExponential);
  EXPECT_EQ(metric.exponential_histogram().data_points(0).count(), 0u);
  EXPECT_EQ(metric.exponential_histogram().data_points(0).positive().bucket_counts_size(), 0);
}

TEST(MetricsRequestTest, ASeriesThatIsGoneIsStaleOnce) {
  Exposition both =
      OneFamily("a_total", MetricType::kCounter, "",
                {.group_labels = 1, .value = 1, .counts = {}, .created_realtime_ns = 5});
  Exposition one = both;
  both.families[0].series.push_back(
      {.group_labels = 1, .variable_labels = 2, .value = 2, .counts = {}});
  MetricsRequests requests = Requests();
  EXPECT_EQ(Decoded(requests.Make(Scrape(both), kTimeNs)).metrics(0).sum().data_points_size(), 2);
  const auto scope = Decoded(requests.Make(Scrape(one), kTimeNs + 1));
  const otlp_decoded::Sum& sum = scope.metrics(0).sum();
  ASSERT_EQ(sum.data_points_size(), 2);
  EXPECT_EQ(sum.data_points(0).flags(), 0u);
  EXPECT_EQ(sum.data_points(1).flags(), 1u);
  EXPECT_EQ(sum.data_points(1).time_unix_nano(), static_cast<uint64_t>(kTimeNs + 1));
  EXPECT_EQ(Decoded(requests.Make(Scrape(one), kTimeNs + 2)).metrics(0).sum().data_points_size(),
            1);
  EXPECT_EQ(Decoded(requests.Make({}, kTimeNs + 3)).metrics(0).sum().data_points(0).flags(), 1u);
  EXPECT_EQ(Decoded(requests.Make({}, kTimeNs + 4)).metrics_size(), 0);
}

TEST(MetricsRequestTest, OfTwoFamiliesWithOneNameTheFirstIsTaken) {
  Exposition exposition = OneFamily("a", MetricType::kGauge, "", {.value = 1, .counts = {}});
  exposition.families.push_back(exposition.families[0]);
  exposition.families[1].series[0].value = 2;
  EXPECT_EQ(OnlyMetric(exposition).gauge().data_points(0).as_double(), 1);
}

TEST(MetricsRequestTest, AFamilyWithoutNativeBucketsInOneSeriesIsExplicit) {
  std::vector<PlainFamily> families = Scrape(OneHistogram(true));
  families[0].samples.push_back(Scrape(OneHistogram(false))[0].samples[0]);
  const auto scope = Decoded(Requests(HistogramForm::kExponential).Make(families, kTimeNs));
  EXPECT_EQ(scope.metrics(0).histogram().data_points_size(), 2);
}

}  // namespace
}  // namespace nccl_exporter::exporter::otlp
