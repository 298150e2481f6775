// SPDX-License-Identifier: Apache-2.0
// Rounds of pages: who shares one, who does not wait for one, and what a failure does.
#include "exporter/scrape/page_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>

#include "exporter/catalogue/metric_filter.h"
#include "exporter/testing/gunzip.h"

namespace nccl_exporter::exporter {
namespace {

constexpr PageKind kText{.format = Format::kText, .is_compressed = false};

PageBuilder::Clock::time_point Far() { return PageBuilder::Clock::now() + std::chrono::hours(1); }
PageBuilder::Clock::time_point Past() {
  return PageBuilder::Clock::now() - std::chrono::seconds(1);
}

// One gauge that tells which exposition it is of.
Exposition Numbered(int number) {
  Exposition exposition;
  exposition.families.push_back({.name = "number",
                                 .help = "",
                                 .unit = "",
                                 .type = MetricType::kGauge,
                                 .scale = {},
                                 .series = {}});
  exposition.families[0].series.push_back({.value = static_cast<double>(number), .counts = {}});
  return exposition;
}

TEST(PageBuilderTest, MakesEveryKindOfPage) {
  PageBuilder builder([](Collect) { return Numbered(5); });
  EXPECT_THAT(*builder.Get(kText, Far()), testing::EndsWith("\nnumber 5\n"));
  EXPECT_THAT(*builder.Get({.format = Format::kOpenMetrics, .is_compressed = false}, Far()),
              testing::EndsWith("\nnumber 5\n# EOF\n"));
  EXPECT_THAT(*builder.Get({.format = Format::kProtobuf, .is_compressed = false}, Far()),
              testing::HasSubstr(std::string("\x0A\x06number", 8)));
  for (const Format format : {Format::kText, Format::kOpenMetrics, Format::kProtobuf}) {
    EXPECT_EQ(Gunzip(*builder.Get({.format = format, .is_compressed = true}, Far())),
              *builder.Get({.format = format, .is_compressed = false}, Far()));
  }
}

TEST(PageBuilderTest, APageIsNeverOlderThanTheCall) {
  std::atomic<int> number = 0;
  PageBuilder builder([&](Collect) { return Numbered(++number); });
  for (int call = 1; call <= 3; ++call) {
    EXPECT_THAT(*builder.Get(kText, Far()),
                testing::EndsWith("number " + std::to_string(call) + '\n'));
  }
}

// Alert series and detail.
Exposition OfBothParts() {
  Exposition exposition = ExpositionOfCatalogue();
  for (const Metric metric : {Metric::kRankInfo, Metric::kProcessThreads})
    exposition.families[static_cast<size_t>(metric)].series.push_back({.value = 1, .counts = {}});
  return exposition;
}

TEST(PageBuilderTest, DetailIsWhatAlertSeriesLeaveOfTheWhole) {
  PageBuilder builder([](Collect collect) {
    EXPECT_EQ(collect, Collect::kWhole);
    return OfBothParts();
  });
  const std::string detail = *builder.Get({.collect = Collect::kDetail}, Far());
  EXPECT_THAT(detail, testing::HasSubstr("process_threads 1"));
  EXPECT_THAT(detail, testing::Not(testing::HasSubstr("nccl_rank_info")));
  EXPECT_THAT(*builder.Get(kText, Far()), testing::HasSubstr("nccl_rank_info 1"));
}

TEST(PageBuilderTest, AlertSeriesHaveAnExpositionOfTheirOwn) {
  std::atomic<int> wholes = 0;
  PageBuilder builder([&](Collect collect) {
    wholes += collect == Collect::kWhole ? 1 : 0;
    return Numbered(static_cast<int>(collect));
  });
  EXPECT_THAT(*builder.Get({.collect = Collect::kAlerts}, Far()), testing::EndsWith("number 1\n"));
  EXPECT_EQ(wholes, 0);
}

TEST(PageBuilderTest, AllWhoComeDuringARoundShareTheNext) {
  std::atomic<int> expositions = 0;
  std::latch has_begun(1);
  std::latch may_end(1);
  PageBuilder builder([&](Collect) {
    if (++expositions == 1) {
      has_begun.count_down();
      may_end.wait();
    }
    return Numbered(expositions);
  });
  std::future<Page> first =
      std::async(std::launch::async, [&] { return builder.Get(kText, Far()); });
  has_begun.wait();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(builder.Get(kText, Past()), nullptr) << "asked, and did not wait";
  may_end.count_down();
  EXPECT_THAT(*first.get(), testing::EndsWith("number 1\n"));
  builder.Get(kText, Far());
  EXPECT_LE(expositions, 3);
}

TEST(PageBuilderTest, AFailureReachesThoseWhoWaitAndEndsWithTheRound) {
  std::atomic<bool> is_broken = true;
  PageBuilder builder([&](Collect) -> Exposition {
    if (is_broken) throw std::runtime_error("no snapshot");
    return Numbered(1);
  });
  EXPECT_THROW(builder.Get(kText, Far()), std::runtime_error);
  is_broken = false;
  EXPECT_NE(builder.Get(kText, Far()), nullptr);
}

}  // namespace
}  // namespace nccl_exporter::exporter
