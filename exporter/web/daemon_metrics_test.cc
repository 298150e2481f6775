// SPDX-License-Identifier: Apache-2.0
// The daemon's own metrics in the family model.
#include "exporter/web/daemon_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/series/metric_filter.h"
#include "exporter/text/version.h"

namespace nccl_exporter::exporter {
namespace {

Exposition ExpositionOf(const DaemonMetrics& daemon) {
  Exposition exposition = ExpositionOfCatalogue();
  daemon.AddTo(exposition);
  return exposition;
}

const Family& FamilyNamed(const Exposition& exposition, std::string_view name) {
  const auto found = std::ranges::find(exposition.families, name, &Family::name);
  EXPECT_NE(found, exposition.families.end()) << name;
  return *found;
}

SeriesDrops DropsOf(uint64_t uid, SeriesLoss loss, uint64_t samples) {
  SeriesDrops drops;
  drops.Add(uid, loss, samples);
  return drops;
}

// Dropped series by their labels.
std::map<std::string, double> DroppedBy(const DaemonMetrics& daemon) {
  const Exposition exposition = ExpositionOf(daemon);
  std::map<std::string, double> dropped;
  for (const Series& series :
       exposition.families[static_cast<size_t>(Metric::kSeriesDropped)].series) {
    std::string text;
    for (const Label& label : exposition.labels[series.variable_labels]->labels())
      text += label.name + '=' + label.value + ',';
    dropped[text] = series.value;
  }
  return dropped;
}

TEST(DaemonMetricsTest, FillsTheCataloguesFamiliesInPlace) {
  const Exposition exposition = ExpositionOf(DaemonMetrics());
  const Family& family = exposition.families[static_cast<size_t>(Metric::kBuildInfo)];
  EXPECT_EQ(family.type, MetricType::kInfo);
  ASSERT_EQ(family.series.size(), 1u);
  EXPECT_EQ(family.series[0].value, 1);
  EXPECT_THAT(exposition.labels[family.series[0].variable_labels]->labels(),
              testing::Contains(Label{"version", std::string(kVersion)}));
}

TEST(DaemonMetricsTest, NamesTheCommitWhereItIsKnown) {
  const auto labels = [](std::string_view commit) {
    const Exposition exposition = ExpositionOf(DaemonMetrics({}, commit));
    const Family& family = exposition.families[static_cast<size_t>(Metric::kBuildInfo)];
    return exposition.labels[family.series.at(0).variable_labels]->labels();
  };
  EXPECT_THAT(labels("1a2b3c4"), testing::Contains(Label{"revision", "1a2b3c4"}));
  EXPECT_THAT(labels(""), testing::SizeIs(2)) << "version and compiler";
}

TEST(DaemonMetricsTest, CountsScrapesByTheirDuration) {
  DaemonMetrics daemon;
  daemon.ObserveScrape(std::chrono::microseconds(500));
  daemon.ObserveScrape(std::chrono::milliseconds(3));
  daemon.ObserveScrape(std::chrono::seconds(20));
  const Exposition exposition = ExpositionOf(daemon);
  const Family& family = exposition.families[static_cast<size_t>(Metric::kScrapeDuration)];
  ASSERT_EQ(family.series.size(), 1u);
  EXPECT_DOUBLE_EQ(family.series[0].value, 20.0035);
  EXPECT_THAT(family.series[0].counts, testing::ElementsAre(1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_EQ(family.scale.bounds.size(), 10u);
  EXPECT_EQ(family.scale.ends.back(), 10u);
}

// 0 would say that all processes are measured.
TEST(DaemonMetricsTest, UnmeasuredProcessesAreAbsentWhereTheyAreNotKnown) {
  DaemonMetrics daemon;
  const auto values = [&] {
    std::vector<double> served;
    const Exposition exposition = ExpositionOf(daemon);
    for (const Series& series :
         exposition.families[static_cast<size_t>(Metric::kUnmeasuredProcesses)].series)
      served.push_back(series.value);
    return served;
  };
  EXPECT_THAT(values(), testing::IsEmpty());
  daemon.SetUnmeasuredProcesses(0);
  EXPECT_THAT(values(), testing::ElementsAre(0));
  daemon.SetUnmeasuredProcesses(3);
  EXPECT_THAT(values(), testing::ElementsAre(3));
  daemon.SetUnmeasuredProcesses(std::nullopt);
  EXPECT_THAT(values(), testing::IsEmpty());
}

TEST(DaemonMetricsTest, AddsDropsUp) {
  DaemonMetrics daemon;
  daemon.CountDrops(DropsOf(1000, SeriesLoss::kFolded, 3));
  daemon.CountDrops(DropsOf(1000, SeriesLoss::kFolded, 4));
  daemon.CountDrops(DropsOf(1001, SeriesLoss::kDetail, 5));
  const std::map<std::string, double> dropped = DroppedBy(daemon);
  EXPECT_EQ(dropped.at("reason=folded,uid=1000,"), 7);
  EXPECT_EQ(dropped.at("reason=detail,uid=1000,"), 0);
  EXPECT_EQ(dropped.at("reason=detail,uid=1001,"), 5);
}

TEST(DaemonMetricsTest, CountsTheDropsOfFurtherUsersTogether) {
  DaemonMetrics daemon;
  EXPECT_EQ(DroppedBy(daemon).size(), kSeriesLossCount) << "there before the first";
  constexpr uint64_t kUsers = collector::kMaxTroubledUsers + 3;
  for (uint64_t uid = 0; uid < kUsers; ++uid)
    daemon.CountDrops(DropsOf(uid, SeriesLoss::kLeftOut, 1));
  const std::map<std::string, double> dropped = DroppedBy(daemon);
  EXPECT_EQ(dropped.size(), (collector::kMaxTroubledUsers + 1) * kSeriesLossCount);
  EXPECT_EQ(dropped.at("reason=left_out,uid=other,"), 3);
}

TEST(DaemonMetricsTest, AddsWhatIsCollectedAlone) {
  Exposition exposition = ExpositionOfCatalogue({}, Collect::kAlerts);
  DaemonMetrics().AddTo(exposition);
  const auto series = [&](Metric metric) {
    return exposition.families[static_cast<size_t>(metric)].series.size();
  };
  EXPECT_EQ(series(Metric::kBuildInfo), 1u);
  EXPECT_EQ(series(Metric::kSeriesDropped), kSeriesLossCount);
  EXPECT_EQ(series(Metric::kProcessThreads), 0u);
  EXPECT_EQ(series(Metric::kScrapeDuration), 0u);
}

// Number of findings by "kind severity", where there are any.
std::map<std::string, double> Findings(const DaemonMetrics& daemon) {
  const Exposition exposition = ExpositionOf(daemon);
  const Family& family = exposition.families[static_cast<size_t>(Metric::kFindings)];
  EXPECT_EQ(family.series.size(), kFindingKinds.size() * kSeverities.size());
  std::map<std::string, double> findings;
  for (const Series& series : family.series) {
    const Labels& labels = exposition.labels[series.variable_labels]->labels();
    EXPECT_THAT(labels, testing::SizeIs(2));
    if (series.value != 0) findings[labels[0].value + " " + labels[1].value] = series.value;
  }
  return findings;
}

TEST(DaemonMetricsTest, ServesTheFindingsOfTheLatestJudgementByKindAndSeverity) {
  DaemonMetrics daemon;
  EXPECT_THAT(Findings(daemon), testing::IsEmpty()) << "every kind is served as 0";
  Finding late, hang;
  late.kind = FindingKind::kLateRank;
  late.severity = Severity::kWarning;
  hang.kind = FindingKind::kHangElsewhere;
  hang.severity = Severity::kCritical;
  daemon.SetFindings({hang, late, late});
  EXPECT_THAT(Findings(daemon),
              testing::UnorderedElementsAre(testing::Pair("hang_elsewhere critical", 1),
                                            testing::Pair("late_rank warning", 2)));
  daemon.SetFindings({});
  EXPECT_THAT(Findings(daemon), testing::IsEmpty());
}

TEST(DaemonMetricsTest, TellsAboutItsProcess) {
  const Exposition exposition = ExpositionOf(DaemonMetrics());
  const auto value = [&](std::string_view name) {
    return FamilyNamed(exposition, name).series.at(0).value;
  };
  EXPECT_EQ(FamilyNamed(exposition, "process_cpu_seconds_total").type, MetricType::kCounter);
  EXPECT_EQ(FamilyNamed(exposition, "process_cpu_seconds_total").unit, "seconds");
  EXPECT_EQ(FamilyNamed(exposition, "process_resident_memory_bytes").unit, "bytes");
  EXPECT_EQ(FamilyNamed(exposition, "process_open_fds").unit, "");
  EXPECT_GT(value("process_cpu_seconds_total"), 0);
  EXPECT_GT(value("process_resident_memory_bytes"), 100000);
  EXPECT_GE(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GT(value("process_max_fds"), value("process_open_fds"));
  EXPECT_GE(value("process_threads"), 1);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(value("process_start_time_seconds"), now + 60);
  EXPECT_GT(value("process_start_time_seconds"), now - 86400);
}

}  // namespace
}  // namespace nccl_exporter::exporter
