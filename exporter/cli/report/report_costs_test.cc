// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr double kNow = 1700000100, kDay = 86400, kStep = 60;  // a point a minute

SampleLabels JobOf(const char* number, const char* team, const char* user) {
  return {{"nccl_job", number}, {"uid", "1000"}, {"team", team}, {"slurm_job_user", user}};
}
SampleLabels With(SampleLabels labels, const char* cause) {
  labels["cause"] = cause;
  return labels;
}

// Two teams: one with jobs of 8 and 4 GPUs, and one with a job of 8, for a day.
class ReportCostsTest : public testing::Test {
 protected:
  Costs Of(const std::string& by) {
    const AskSamples ask = [&](const std::string& query, double time) {
      EXPECT_EQ(time, kNow);
      EXPECT_THAT(query, HasSubstr("[86399s:60s])"));
      queries_.push_back(query);
      return Answer(query);
    };
    return CostsOf(ask, by, {{"cluster", "a"}}, {.from = kNow - kDay, .to = kNow});
  }
  std::vector<CostRow> By(const std::string& by) { return Of(by).rows; }
  static Sample Hours(SampleLabels labels, double hours) {
    return {.labels = std::move(labels), .time = kNow, .value = hours * 3600 / kStep};
  }
  Samples Answer(const std::string& query) const {
    if (is_empty_) return {};
    if (query.starts_with("sum_over_time((job:nccl_job:info{cluster=\"a\"})["))
      return {Hours(JobOf("1", "speech", "ann"), 192), Hours(JobOf("2", "speech", "bob"), 96),
              Hours(JobOf("3", "vision", "ann"), 192)};
    if (has_older_rules_ ||
        query.find("(job:nccl_lost_gpu_seconds:rate{cluster=\"a\"})") == std::string::npos)
      return {};
    return {Hours(With(JobOf("3", "vision", "ann"), "slow_transfers"), 1),
            Hours(With(JobOf("3", "vision", "ann"), "hang"), 8),
            Hours(With(JobOf("1", "speech", "ann"), "cpu_wait"), 2),
            Hours(With(JobOf("2", "speech", "bob"), "late_rank"), 1),
            Hours(With(JobOf("1", "speech", "ann"), "uneven_work"), 0.5)};
  }

  std::vector<std::string> queries_;
  bool is_empty_ = false;
  bool has_older_rules_ = false;
};

TEST_F(ReportCostsTest, HoursAreByTeamAndCauseAndTheFleetComesFirst) {
  const std::vector<CostRow> rows = By("team");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "all");
  EXPECT_NEAR(rows[0].gpu_seconds, 480 * 3600, 1e-6);
  EXPECT_NEAR(rows[0].lost_seconds, 12.5 * 3600, 1e-6);
  EXPECT_EQ(rows[1].name, "vision");
  EXPECT_THAT(rows[1].causes, ElementsAre(Pair("hang", 8 * 3600), Pair("slow_transfers", 3600)));
  EXPECT_EQ(rows[2].name, "speech");
  EXPECT_THAT(rows[2].causes, ElementsAre(Pair("cpu_wait", 2 * 3600), Pair("late_rank", 3600),
                                          Pair("uneven_work", 1800)));
}

TEST_F(ReportCostsTest, ByUserAndByJobTheyAreTheSameHours) {
  const std::vector<CostRow> users = By("user"), jobs = By("job");
  EXPECT_EQ(users.at(1).name, "ann");
  EXPECT_NEAR(users[1].lost_seconds, 11.5 * 3600, 1e-6);
  ASSERT_EQ(jobs.size(), 4u);
  EXPECT_EQ(jobs[1].name, "job 3 of user 1000");
  EXPECT_NEAR(jobs[0].lost_seconds, users[0].lost_seconds, 1e-6);
}

TEST_F(ReportCostsTest, TextAndJson) {
  EXPECT_EQ(CostsText(Of("team"), 0),
            "2023-11-13 22:15:00 to 2023-11-14 22:15:00 UTC (24.0 h)\n\n"
            "WHO      GPU TIME        LOST  SHARE  OF ALL  BY CAUSE\n"
            "all     480 GPU h  12.5 GPU h  2.6 %   2.6 %  hang 8 GPU h, cpu_wait 2 GPU h, "
            "late_rank 1 GPU h, slow_transfers 1 GPU h, uneven_work 30 GPU min\n"
            "vision  192 GPU h     9 GPU h  4.7 %   1.9 %  hang 8 GPU h, slow_transfers 1 GPU h\n"
            "speech  288 GPU h   3.5 GPU h  1.2 %   0.7 %  cpu_wait 2 GPU h, late_rank 1 GPU h, "
            "uneven_work 30 GPU min\n");
  EXPECT_THAT(CostsText({.time = {}, .rows = {{.name = "all", .gpu_seconds = 11'552 * 3600.0}}}, 0),
              HasSubstr("all  11552 GPU h     -      -       -\n"))
      << "without GPU times";
  const auto json = nlohmann::json::parse(CostsJson(Of("team")));
  EXPECT_EQ(json["to"], kNow);
  EXPECT_EQ(json["from"], kNow - kDay);
  EXPECT_EQ(json["rows"][1]["name"], "vision");
  EXPECT_NEAR(json["rows"][1]["causes"]["hang"].get<double>(), 8 * 3600, 1e-6);
}

// A server sums a day at the step of the rules.
TEST_F(ReportCostsTest, LongTimesAreAskedForByTheDay) {
  std::vector<std::pair<std::string, double>> asked;
  const AskSamples ask = [&](const std::string& query, double time) -> Samples {
    asked.emplace_back(query.substr(0, query.find("{")) + query.substr(query.rfind("[")), time);
    return {Hours(JobOf("1", "speech", "ann"), 24)};
  };
  const auto rows = CostsOf(ask, "team", {}, {.from = kNow - 2.5 * kDay, .to = kNow}).rows;
  EXPECT_NEAR(rows[0].gpu_seconds, 3 * 24 * 3600, 1e-6);
  asked.resize(3);
  EXPECT_THAT(asked,
              ElementsAre(Pair("sum_over_time((job:nccl_job:info[86399s:60s])", kNow - 1.5 * kDay),
                          Pair("sum_over_time((job:nccl_job:info[86399s:60s])", kNow - 0.5 * kDay),
                          Pair("sum_over_time((job:nccl_job:info[43199s:60s])", kNow)));
}

TEST_F(ReportCostsTest, WhatIsNotRecordedIsNot0) {
  has_older_rules_ = true;
  EXPECT_THROW(By("team"), std::runtime_error);
}

TEST_F(ReportCostsTest, WithoutJobsItFails) {
  is_empty_ = true;
  EXPECT_THROW(By("job"), std::runtime_error);
}

}  // namespace
}  // namespace nccl_exporter::exporter
