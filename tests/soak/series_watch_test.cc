// SPDX-License-Identifier: Apache-2.0
// Pages with one thing wrong each, in every format.
#include "tests/soak/series_watch.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <metric_family.pb.h>

#include <sstream>

namespace nccl_exporter::soak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kRetentionSeconds = 20;

// A page with one counter of one rank, and the daemon's own.
std::string TextPage(double operations, bool has_rank = true) {
  std::ostringstream page;
  page << "# HELP process_cpu_seconds_total CPU time.\n# TYPE process_cpu_seconds_total counter\n"
          "process_cpu_seconds_total 1.5\n# TYPE nccl_collective_operations_total counter\n";
  if (has_rank)
    page << "nccl_collective_operations_total{comm=\"a1\",rank=\"0\",nccl_job=\"7\"} " << operations
         << "\n";
  return page.str();
}

std::string ProtobufPage(uint64_t count, int64_t created_seconds = 1000) {
  io::prometheus::client::MetricFamily family;
  family.set_name("nccl_collective_duration_seconds");
  family.set_type(io::prometheus::client::HISTOGRAM);
  io::prometheus::client::Metric* metric = family.add_metric();
  io::prometheus::client::LabelPair* label = metric->add_label();
  label->set_name("comm");
  label->set_value("a1");
  io::prometheus::client::Histogram* histogram = metric->mutable_histogram();
  histogram->set_sample_count(5);
  histogram->set_schema(3);
  histogram->add_positive_span()->set_length(1);
  histogram->add_positive_delta(static_cast<int64_t>(count));
  histogram->mutable_created_timestamp()->set_seconds(created_seconds);
  std::ostringstream page;
  google::protobuf::util::SerializeDelimitedToOstream(family, &page);
  return page.str();
}

class ASeriesWatch : public testing::Test {
 protected:
  SeriesWatch WatchOf(PageFormat format) {
    return {std::string(Name(format)), kRetentionSeconds, &findings_};
  }

  Findings findings_;
  SeriesWatch text_ = WatchOf(PageFormat::kText);
  SeriesWatch protobuf_ = WatchOf(PageFormat::kProtobuf);
};

TEST_F(ASeriesWatch, FindsNothingInCountersThatGrowOrRest) {
  for (const double operations : {1., 2., 2., 9.}) {
    EXPECT_TRUE(text_.Compare(PageFormat::kText, TextPage(operations), operations));
  }
  EXPECT_THAT(findings_.texts(), IsEmpty());
  EXPECT_EQ(text_.series(), 2u);
}

TEST_F(ASeriesWatch, FindsACounterThatGoesBack) {
  text_.Compare(PageFormat::kText, TextPage(5), 1);
  text_.Compare(PageFormat::kText, TextPage(4), 2);
  EXPECT_THAT(findings_.texts(), ElementsAre(HasSubstr("goes back from 5 to 4")));
}

TEST_F(ASeriesWatch, FindsANativeBucketThatGoesBack) {
  protobuf_.Compare(PageFormat::kProtobuf, ProtobufPage(5), 1);
  protobuf_.Compare(PageFormat::kProtobuf, ProtobufPage(3), 2);
  EXPECT_THAT(findings_.texts(), ElementsAre(HasSubstr("#schema3:0 goes back from 5 to 3")));
}

TEST_F(ASeriesWatch, FindsACreatedTimeThatMoves) {
  protobuf_.Compare(PageFormat::kProtobuf, ProtobufPage(5, 1000), 1);
  protobuf_.Compare(PageFormat::kProtobuf, ProtobufPage(5, 1001), 2);
  EXPECT_THAT(
      findings_.texts(),
      testing::Contains(HasSubstr("was created at 1000.000000000, and now at 1001.000000000")));
}

TEST_F(ASeriesWatch, FindsASeriesThatGoesBeforeItsTimeAndComesBack) {
  text_.Compare(PageFormat::kText, TextPage(1), 1);
  text_.Compare(PageFormat::kText, TextPage(2), 10);
  text_.Compare(PageFormat::kText, TextPage(0, false), 15);
  text_.Compare(PageFormat::kText, TextPage(2), 16);
  EXPECT_THAT(findings_.texts(),
              ElementsAre(HasSubstr("has gone 5.0 s after the last sign of life"),
                          HasSubstr("was missing for a while")));
}

TEST_F(ASeriesWatch, LetsTheGlobalRankGoOfAProcessThatTurnsOutToHaveSeveralGpus) {
  text_.Compare(PageFormat::kText,
                "# TYPE c counter\nc_total{pid=\"7\",global_rank=\"0\",reason=\"a\"} 1\n", 1);
  text_.Compare(PageFormat::kText, "# TYPE c counter\nc_total{pid=\"7\",reason=\"a\"} 1\n", 2);
  EXPECT_THAT(findings_.texts(), IsEmpty());
  text_.Compare(PageFormat::kText, "# TYPE c counter\n", 3);
  EXPECT_THAT(findings_.texts(), ElementsAre(HasSubstr("has gone")));
}

TEST_F(ASeriesWatch, LetsASeriesGoAfterTheRetentionTime) {
  text_.Compare(PageFormat::kText, TextPage(1), 1);
  text_.Compare(PageFormat::kText, TextPage(2), 10);
  text_.Compare(PageFormat::kText, TextPage(2), 29);
  text_.Compare(PageFormat::kText, TextPage(0, false), 30);
  EXPECT_THAT(findings_.texts(), IsEmpty());
  EXPECT_EQ(text_.ended_series(), 1u);
}

TEST_F(ASeriesWatch, FindsASeriesOfTheDaemonItselfThatGoes) {
  text_.Compare(PageFormat::kText, TextPage(1), 1);
  text_.Compare(PageFormat::kText, "# TYPE nccl_exporter_limit gauge\nnccl_exporter_limit 1\n",
                100);
  EXPECT_THAT(findings_.texts(), testing::Contains(HasSubstr("though it is the daemon's own")));
}

TEST_F(ASeriesWatch, FindsASeriesThatIsThereTwice) {
  const std::string page = TextPage(1);
  text_.Compare(PageFormat::kText, page, 1);
  text_.Compare(PageFormat::kText,
                page + page.substr(page.find("nccl_collective_operations_total{")), 2);
  EXPECT_THAT(findings_.texts(), ElementsAre(HasSubstr("is there twice")));
}

TEST_F(ASeriesWatch, TellsTheFirstFewOfManyFindingsOnAPage) {
  std::string page = "# TYPE x counter\n";
  for (int i = 0; i < 10; ++i) page += "x{i=\"" + std::to_string(i) + "\"} 1\n";
  text_.Compare(PageFormat::kText, page, 1);
  text_.Compare(PageFormat::kText, "# TYPE x counter\n", 2);
  EXPECT_EQ(findings_.count(), 4u);
  EXPECT_THAT(findings_.texts(), testing::Contains(HasSubstr("page 2: 7 more findings")));
}

TEST_F(ASeriesWatch, TellsAPageThatIsCutOff) {
  const std::string text = TextPage(1);
  EXPECT_FALSE(text_.Compare(PageFormat::kText, text.substr(0, text.size() - 1), 1));
  EXPECT_FALSE(text_.Compare(PageFormat::kText, "", 1));
  const std::string protobuf = ProtobufPage(5);
  EXPECT_FALSE(
      protobuf_.Compare(PageFormat::kProtobuf, protobuf.substr(0, protobuf.size() - 1), 1));
  SeriesWatch openmetrics = WatchOf(PageFormat::kOpenMetrics);
  EXPECT_FALSE(openmetrics.Compare(PageFormat::kOpenMetrics, text, 1));
  EXPECT_TRUE(openmetrics.Compare(PageFormat::kOpenMetrics, text + "# EOF\n", 2));
}

}  // namespace
}  // namespace nccl_exporter::soak
