// SPDX-License-Identifier: Apache-2.0
// Both text formats, line by line: names, types, units, escaping and the spelling of numbers.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "exporter/exposition/encoder.h"
#include "exporter/exposition/number_text.h"
#include "exporter/series/metric_filter.h"
#include "exporter/testing/one_family.h"

namespace nccl_exporter::exporter {
namespace {

std::string Encoded(Format format, const Exposition& exposition) {
  std::string text;
  Encode(format, exposition, text);
  return text;
}

std::string Number(double value) {
  char text[kNumberTextBytes];
  return std::string(text, WriteNumber(text, value));
}

Exposition OneHistogram(std::span<const uint64_t> counts) {
  Exposition exposition =
      OneFamily("h_seconds", MetricType::kHistogram, "seconds",
                {.group_labels = 1, .variable_labels = 2, .value = 7.5, .counts = counts});
  exposition.families[0].scale = {.native = {}, .bounds = {0.5, 1, 134217728}, .ends = {1, 3, 4}};
  return exposition;
}

TEST(NumberTextTest, WholeNumbersHaveNeitherPointNorExponent) {
  EXPECT_EQ(Number(0), "0");
  EXPECT_EQ(Number(-3), "-3");
  EXPECT_EQ(Number(1e15), "1000000000000000");
  EXPECT_EQ(Number(9007199254740991.0), "9007199254740991");
}

TEST(NumberTextTest, OtherNumbersReadBackExactly) {
  for (const double value :
       {0.1, 1.0 / 3, 1e-300, 1.7976931348623157e308, 9007199254740992.0, 1763673600.1234567}) {
    EXPECT_EQ(std::stod(Number(value)), value) << Number(value);
  }
}

TEST(NumberTextTest, NonFiniteNumbersAreSpelledAsPrometheusReadsThem) {
  EXPECT_EQ(Number(std::nan("")), "NaN");
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(Number(-std::numeric_limits<double>::infinity()), "-Inf");
}

TEST(NumberTextTest, AnyNumberFitsItsRoom) {
  for (const double value :
       {-1.7976931348623157e308, -2.2250738585072014e-308, -1234567890.1234567}) {
    EXPECT_LE(Number(value).size(), kNumberTextBytes);
  }
}

TEST(NumberTextTest, BoundsAreSpelledAsGoDoes) {
  EXPECT_EQ(BoundText(0), "0");
  EXPECT_EQ(BoundText(1), "1");
  EXPECT_EQ(BoundText(0.25), "0.25");
  EXPECT_EQ(BoundText(0.000244140625), "0.000244140625");
  EXPECT_EQ(BoundText(1.52587890625e-05), "1.52587890625e-05");
  EXPECT_EQ(BoundText(100000), "100000");
  EXPECT_EQ(BoundText(1000000), "1e+06");
  EXPECT_EQ(BoundText(134217728), "1.34217728e+08");
  EXPECT_EQ(BoundText(std::numeric_limits<double>::infinity()), "+Inf");
}

TEST(NumberTextTest, CanonicalBoundsShowThatTheyAreFloats) {
  EXPECT_EQ(CanonicalBoundText(0), "0.0");
  EXPECT_EQ(CanonicalBoundText(1), "1.0");
  EXPECT_EQ(CanonicalBoundText(0.25), "0.25");
  EXPECT_EQ(CanonicalBoundText(1000000), "1e+06");
  EXPECT_EQ(CanonicalBoundText(std::numeric_limits<double>::infinity()), "+Inf");
}

TEST(TextEncoderTest, NamesACounterWithItsSuffix) {
  const Exposition exposition =
      OneFamily("c_bytes_total", MetricType::kCounter, "bytes",
                {.group_labels = 1, .variable_labels = 2, .value = 3, .counts = {}});
  EXPECT_EQ(Encoded(Format::kText, exposition),
            "# HELP c_bytes_total Help.\n# TYPE c_bytes_total "
            "counter\nc_bytes_total{a=\"1\",b=\"2\",own=\"x\"} 3\n");
}

TEST(OpenMetricsEncoderTest, NamesACounterWithoutItsSuffixAndTellsTheUnit) {
  const Exposition exposition =
      OneFamily("c_bytes_total", MetricType::kCounter, "bytes",
                {.group_labels = 1, .variable_labels = 2, .value = 3, .counts = {}});
  EXPECT_EQ(Encoded(Format::kOpenMetrics, exposition),
            "# TYPE c_bytes counter\n# UNIT c_bytes bytes\n# HELP c_bytes Help.\n"
            "c_bytes_total{a=\"1\",b=\"2\",own=\"x\"} 3\n# EOF\n");
}

TEST(OpenMetricsEncoderTest, TellsNoUnitThatTheNameDoesNotEndIn) {
  EXPECT_EQ(Encoded(Format::kOpenMetrics, OneFamily("megabytes", MetricType::kGauge, "bytes", {})),
            "# TYPE megabytes gauge\n# HELP megabytes Help.\nmegabytes 0\n# EOF\n");
}

TEST(TextEncoderTest, ServesAnInfoMetricAsGauge) {
  const Exposition exposition =
      OneFamily("i_info", MetricType::kInfo, "",
                {.group_labels = 1, .variable_labels = kNoLabels, .value = 1, .counts = {}});
  EXPECT_EQ(Encoded(Format::kText, exposition),
            "# HELP i_info Help.\n# TYPE i_info gauge\ni_info{a=\"1\",b=\"2\"} 1\n");
}

TEST(OpenMetricsEncoderTest, ServesAnInfoMetricAsInfo) {
  const Exposition exposition =
      OneFamily("i_info", MetricType::kInfo, "",
                {.group_labels = kNoLabels, .variable_labels = 2, .value = 1, .counts = {}});
  EXPECT_EQ(Encoded(Format::kOpenMetrics, exposition),
            "# TYPE i info\n# HELP i Help.\ni_info{own=\"x\"} 1\n# EOF\n");
}

TEST(TextEncoderTest, CumulatesAHistogram) {
  constexpr std::array<uint64_t, 6> kCounts{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(Encoded(Format::kText, OneHistogram(kCounts)),
            "# HELP h_seconds Help.\n# TYPE h_seconds histogram\n"
            "h_seconds_bucket{a=\"1\",b=\"2\",own=\"x\",le=\"0.5\"} 1\n"
            "h_seconds_bucket{a=\"1\",b=\"2\",own=\"x\",le=\"1\"} 6\n"
            "h_seconds_bucket{a=\"1\",b=\"2\",own=\"x\",le=\"1.34217728e+08\"} 10\n"
            "h_seconds_bucket{a=\"1\",b=\"2\",own=\"x\",le=\"+Inf\"} 21\n"
            "h_seconds_sum{a=\"1\",b=\"2\",own=\"x\"} 7.5\n"
            "h_seconds_count{a=\"1\",b=\"2\",own=\"x\"} 21\n");
}

TEST(OpenMetricsEncoderTest, SpellsBoundsCanonically) {
  constexpr std::array<uint64_t, 6> kCounts{1, 2, 3, 4, 5, 6};
  const std::string text = Encoded(Format::kOpenMetrics, OneHistogram(kCounts));
  EXPECT_NE(text.find("own=\"x\",le=\"1.0\"} 6\n"), std::string::npos) << text;
  EXPECT_NE(text.find("own=\"x\",le=\"1.34217728e+08\"} 10\n"), std::string::npos) << text;
}

TEST(TextEncoderTest, WritesAHistogramWithoutLabels) {
  constexpr std::array<uint64_t, 6> kCounts{};
  Exposition exposition = OneHistogram(kCounts);
  exposition.families[0].series[0].group_labels = exposition.families[0].series[0].variable_labels =
      kNoLabels;
  const std::string text = Encoded(Format::kText, exposition);
  EXPECT_NE(text.find("\nh_seconds_bucket{le=\"0.5\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nh_seconds_sum 7.5\nh_seconds_count 0\n"), std::string::npos) << text;
}

TEST(TextEncoderTest, EscapesLabelValuesAndHelp) {
  Exposition exposition =
      OneFamily("g", MetricType::kGauge, "",
                {.group_labels = 1, .variable_labels = kNoLabels, .value = 1, .counts = {}});
  exposition.labels[1] =
      std::make_shared<const LabelSet>(Labels{{"a", "back\\slash \"quote\" line\nfeed"}});
  exposition.families[0].help = "back\\slash \"quote\" line\nfeed";
  EXPECT_EQ(Encoded(Format::kText, exposition),
            "# HELP g back\\\\slash \"quote\" line\\nfeed\n# TYPE g gauge\n"
            "g{a=\"back\\\\slash \\\"quote\\\" line\\nfeed\"} 1\n");
}

TEST(OpenMetricsEncoderTest, EscapesQuotesInHelpToo) {
  Exposition exposition = OneFamily("g", MetricType::kGauge, "", {});
  exposition.families[0].help = "a \"quote\"";
  EXPECT_EQ(Encoded(Format::kOpenMetrics, exposition),
            "# TYPE g gauge\n# HELP g a \\\"quote\\\"\ng 0\n# EOF\n");
}

TEST(EncodersTest, LeaveFamiliesWithoutSeriesOut) {
  EXPECT_EQ(Encoded(Format::kText, ExpositionOfCatalogue()), "");
  EXPECT_EQ(Encoded(Format::kOpenMetrics, ExpositionOfCatalogue()), "# EOF\n");
}

TEST(MetricFamilyTest, ClassicBoundsAreNativeBounds) {
  const Exposition exposition = ExpositionOfCatalogue();
  const HistogramScale& scale =
      exposition.families[static_cast<size_t>(Metric::kCollectiveDuration)].scale;
  ASSERT_TRUE(scale.native.has_value());
  EXPECT_EQ(scale.native->schema, 3);
  EXPECT_EQ(scale.native->first_bound, -160);
  EXPECT_EQ(scale.bounds.front(), std::ldexp(1.0, -16));
  EXPECT_EQ(scale.bounds.back(), 4.0);
  EXPECT_EQ(scale.ends.front(), 33u);  // bounds -160 to -128
}

}  // namespace
}  // namespace nccl_exporter::exporter
