// SPDX-License-Identifier: Apache-2.0
// The reported costs are those of the scrape body that the daemon serves.
#include "exporter/testing/cardinality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "exporter/testing/example_snapshot.h"
#include "exporter/web/scrape_page.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr NodeShape kSmall{.ranks = 2, .communicators = 3, .point_to_point = 1, .collectives = 2};

MetricFilter WithoutHistograms() {
  MetricFilter filter;
  filter.Disable("histograms");
  return filter;
}

// Lines that are samples, in all or of one family.
size_t SampleLines(const std::string& page, const std::string& family = "") {
  size_t lines = 0;
  std::istringstream text(page);
  for (std::string line; std::getline(text, line);) {
    const std::string name = line.substr(0, line.find_first_of("{ "));
    const bool is_of_family = family.empty() || name == family || name == family + "_bucket" ||
                              name == family + "_sum" || name == family + "_count";
    if (!line.empty() && line.front() != '#' && is_of_family) ++lines;
  }
  return lines;
}

TEST(CardinalityTest, SeriesAreTheSampleLinesOfThePage) {
  for (const auto& book : {ExampleBook(), AssumedBook(NodeOfShape(kSmall))}) {
    for (const MetricFilter& filter : {MetricFilter(), WithoutHistograms()}) {
      const Cardinality cardinality = CardinalityOf(book, filter);
      BookSource books([&] { return book; });
      AnswerBudget budget;
      ScrapePage page(books, budget, kSeriesLimit, filter);
      const std::string text(
          page.Answer({.path = "/metrics", .accept = "", .accept_encoding = ""}).bytes());
      EXPECT_EQ(cardinality.classic_series, SampleLines(text));
      size_t classic = 0;
      size_t native = 0;
      for (const FamilyCost& family : cardinality.families) {
        EXPECT_EQ(family.classic_series, SampleLines(text, family.name)) << family.name;
        classic += family.classic_series;
        native += family.native_series;
      }
      EXPECT_EQ(classic, cardinality.classic_series);
      EXPECT_EQ(native, cardinality.native_series);
    }
  }
}

TEST(CardinalityTest, CountsOnePartOfTheMetrics) {
  const auto book = AssumedBook(NodeOfShape(kSmall));
  BookSource books([&] { return book; });
  AnswerBudget budget;
  ScrapePage page(books, budget);
  size_t sum = 0;
  for (const auto& [name, collect] : {std::pair<std::string, Collect>{"alerts", Collect::kAlerts},
                                      {"detail", Collect::kDetail}}) {
    const std::string text(page.Answer({.path = "/metrics",
                                        .accept = "",
                                        .accept_encoding = "",
                                        .query = {{"collect[]", name}}})
                               .bytes());
    const size_t series = CardinalityOf(book, {}, collect).classic_series;
    EXPECT_EQ(series, SampleLines(text)) << name;
    sum += series;
  }
  EXPECT_EQ(sum, CardinalityOf(book, {}).classic_series);
}

TEST(CardinalityTest, BytesOfFamiliesAddUpToTheScrapeBody) {
  const Cardinality cardinality = CardinalityOf(AssumedBook(NodeOfShape(kSmall)), {});
  const std::string_view end = "# EOF\n";
  for (const Format format : {Format::kText, Format::kOpenMetrics, Format::kProtobuf}) {
    size_t bytes = format == Format::kOpenMetrics ? end.size() : 0;
    for (const FamilyCost& family : cardinality.families)
      bytes += family.bytes[static_cast<size_t>(format)];
    const BodyCost& body = cardinality.bodies[static_cast<size_t>(format)];
    EXPECT_EQ(bytes, body.bytes);
    EXPECT_LT(body.compressed_bytes, body.bytes / 4);
    EXPECT_GT(body.compressed_bytes, 100u);
  }
}

TEST(CardinalityTest, ANativeHistogramIsOneSeriesUnlessOff) {
  const auto book = AssumedBook(NodeOfShape(kSmall));
  const Cardinality both = CardinalityOf(book, {});
  constexpr size_t kSamplesOfAHistogram = 13;  // ten bounds, infinity, sum, count
  for (const FamilyCost& family : both.families) {
    const auto row = std::ranges::find(kMetrics, family.name, &MetricRow::name);
    const bool is_native = row != kMetrics.end() && row->type == MetricType::kHistogram &&
                           row->scope != LabelScope::kDaemon;
    EXPECT_EQ(family.classic_series, family.native_series * (is_native ? kSamplesOfAHistogram : 1))
        << family.name;
  }
  MetricFilter classic_only;
  classic_only.SetNativeSchema("off");
  const Cardinality classic = CardinalityOf(book, classic_only);
  EXPECT_EQ(classic.native_series, classic.classic_series);
  EXPECT_EQ(classic.classic_series, both.classic_series);
  EXPECT_LT(classic.bodies[static_cast<size_t>(Format::kProtobuf)].bytes,
            both.bodies[static_cast<size_t>(Format::kProtobuf)].bytes);
}

TEST(CardinalityTest, TheTableSaysWhatSavesMostAndWhatTheRulesMiss) {
  const auto book = AssumedBook(NodeOfShape(kSmall));
  const std::string text = CardinalityText(book, {});
  EXPECT_THAT(text, HasSubstr("2 processes, 6 communicators in total\n"));
  EXPECT_THAT(text, HasSubstr("--metrics.disable=histograms"));
  EXPECT_THAT(text, HasSubstr("above it are lost detail 0, folded 0, left_out 0, new 0\n"));
  EXPECT_THAT(text, HasSubstr("\nthe shipped rules have everything that they need\n"));
  EXPECT_THAT(CardinalityText(book, WithoutHistograms()),
              Not(HasSubstr("--metrics.disable=histograms")));
  MetricFilter filter;
  filter.DropLabel("size");
  EXPECT_THAT(CardinalityText(book, filter),
              HasSubstr("\nleft out, but needed by the shipped rules: size\n"));
}

TEST(CardinalityTest, ANodeBeyondTheCapSaysSo) {
  const Cardinality cardinality =
      CardinalityOf(AssumedBook(NodeOfShape({.ranks = 8, .communicators = 60})), {});
  EXPECT_LE(cardinality.classic_series, size_t{kSeriesLimit} + 200)
      << "the daemon's own are not capped";
  EXPECT_GT(cardinality.drops.Of(SeriesLoss::kDetail), 10000u);
  EXPECT_EQ(cardinality.drops.Of(SeriesLoss::kFolded), 0u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
