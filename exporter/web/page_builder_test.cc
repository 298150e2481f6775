// SPDX-License-Identifier: Apache-2.0
// Rounds of pages: who shares one, who does not wait for one, and what a failure does.
#include "exporter/web/page_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>

#include "exporter/series/metric_filter.h"
#include "exporter/testing/gunzip.h"

namespace nccl_exporter::exporter {
namespace {

constexpr PageKind kText{.format = Format::kText, .is_compressed = false};

PageBuilder::Clock::time_point Far() { return PageBuilder::Clock::now() + std::chrono::hours(1); }
PageBuilder::Clock::time_point Past() {
  return PageBuilder::Clock::now() - std::chrono::seconds(1);
}

// One gauge, the number of the exposition.
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

class PageBuilderTest : public testing::Test {
 protected:
  static Page Get(PageBuilder& builder, PageKind kind, PageBuilder::Clock::time_point deadline) {
    Refusal refusal{};
    return builder.Get(kind, deadline, refusal);
  }

  AnswerBudget budget_;
};

TEST_F(PageBuilderTest, MakesEveryKindOfPage) {
  PageBuilder builder([](Collect) { return Numbered(5); }, budget_);
  EXPECT_THAT(*Get(builder, kText, Far()), testing::EndsWith("\nnumber 5\n"));
  EXPECT_THAT(*Get(builder, {.format = Format::kOpenMetrics, .is_compressed = false}, Far()),
              testing::EndsWith("\nnumber 5\n# EOF\n"));
  EXPECT_THAT(*Get(builder, {.format = Format::kProtobuf, .is_compressed = false}, Far()),
              testing::HasSubstr(std::string("\x0A\x06number", 8)));
  for (const Format format : {Format::kText, Format::kOpenMetrics, Format::kProtobuf}) {
    EXPECT_EQ(Gunzip(*Get(builder, {.format = format, .is_compressed = true}, Far())),
              *Get(builder, {.format = format, .is_compressed = false}, Far()));
  }
}

TEST_F(PageBuilderTest, APageIsNeverOlderThanTheCall) {
  std::atomic<int> number = 0;
  PageBuilder builder([&](Collect) { return Numbered(++number); }, budget_);
  for (int call = 1; call <= 3; ++call) {
    EXPECT_THAT(*Get(builder, kText, Far()),
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

TEST_F(PageBuilderTest, DetailIsWhatAlertSeriesLeaveOfTheWhole) {
  PageBuilder builder(
      [](Collect collect) {
        EXPECT_EQ(collect, Collect::kWhole);
        return OfBothParts();
      },
      budget_);
  const std::string detail = *Get(builder, {.collect = Collect::kDetail}, Far());
  EXPECT_THAT(detail, testing::HasSubstr("process_threads 1"));
  EXPECT_THAT(detail, testing::Not(testing::HasSubstr("nccl_rank_info")));
  EXPECT_THAT(*Get(builder, kText, Far()), testing::HasSubstr("nccl_rank_info 1"));
}

TEST_F(PageBuilderTest, AlertSeriesHaveAnExpositionOfTheirOwn) {
  std::atomic<int> wholes = 0;
  PageBuilder builder(
      [&](Collect collect) {
        wholes += collect == Collect::kWhole ? 1 : 0;
        return Numbered(static_cast<int>(collect));
      },
      budget_);
  EXPECT_THAT(*Get(builder, {.collect = Collect::kAlerts}, Far()), testing::EndsWith("number 1\n"));
  EXPECT_EQ(wholes, 0);
}

TEST_F(PageBuilderTest, AllWhoComeDuringARoundShareTheNext) {
  std::atomic<int> expositions = 0;
  std::latch has_begun(1);
  std::latch may_end(1);
  PageBuilder builder(
      [&](Collect) {
        if (++expositions == 1) {
          has_begun.count_down();
          may_end.wait();
        }
        return Numbered(expositions);
      },
      budget_);
  std::future<Page> first =
      std::async(std::launch::async, [&] { return Get(builder, kText, Far()); });
  has_begun.wait();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(Get(builder, kText, Past()), nullptr) << "asked, and did not wait";
  may_end.count_down();
  EXPECT_THAT(*first.get(), testing::EndsWith("number 1\n"));
  Get(builder, kText, Far());
  EXPECT_LE(expositions, 3);
}

TEST_F(PageBuilderTest, AFailureReachesThoseWhoWaitAndEndsWithTheRound) {
  std::atomic<bool> is_broken = true;
  PageBuilder builder(
      [&](Collect) -> Exposition {
        if (is_broken) throw std::runtime_error("no snapshot");
        return Numbered(1);
      },
      budget_);
  EXPECT_THROW(Get(builder, kText, Far()), std::runtime_error);
  is_broken = false;
  EXPECT_NE(Get(builder, kText, Far()), nullptr);
}

// Regression: the plain page was kept first, and took the room of the compressed one.
TEST_F(PageBuilderTest, ACompressedPageComesBeforeThePlainOne) {
  AnswerBudget budget(4000);  // bytes: enough for one of the two
  std::atomic<size_t> held = 0;
  budget.SetGiveWay([&] {
    held = budget.held();
    return false;
  });
  std::latch has_begun(1);
  std::latch may_end(1);
  std::atomic<int> expositions = 0;
  PageBuilder builder(
      [&](Collect) {
        if (++expositions == 1) {
          has_begun.count_down();
          may_end.wait();
        }
        Exposition exposition = Numbered(5);
        exposition.families[0].help = std::string(3950, 'h');
        return exposition;
      },
      budget);
  constexpr PageKind kCompressed{.format = Format::kText, .is_compressed = true};
  Get(builder, kText, Past());
  has_begun.wait();
  for (const PageKind& kind : {kText, kCompressed}) Get(builder, kind, Past());  // in one round
  may_end.count_down();
  EXPECT_NE(Get(builder, kCompressed, Far()), nullptr);
  Get(builder, kCompressed, Far());
  EXPECT_GT(held, 0u);
  EXPECT_LT(held, 1000u) << "the compressed page has its room when the plain one finds none";
}

TEST_F(PageBuilderTest, SaysWhyThereIsNoPage) {
  AnswerBudget budget(10);  // bytes: less than a page
  std::latch may_begin(1);
  PageBuilder builder(
      [&](Collect) {
        may_begin.wait();
        return Numbered(5);
      },
      budget);
  Refusal refusal{};
  EXPECT_EQ(builder.Get(kText, Past(), refusal), nullptr);
  EXPECT_EQ(refusal, Refusal::kScrapeTimeout);
  may_begin.count_down();
  EXPECT_EQ(builder.Get(kText, Far(), refusal), nullptr);
  EXPECT_EQ(refusal, Refusal::kAnswerBytes);
}

}  // namespace
}  // namespace nccl_exporter::exporter
