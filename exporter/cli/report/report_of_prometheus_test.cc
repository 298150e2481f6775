// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/report/report_of_prometheus.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "exporter/cli/report/report_request.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr double kNow = 1700000100;  // 2023-11-14T22:15:00Z
constexpr double kBegin = kNow - 3600;
constexpr double kStep = 15;  // the 240th part of the hour that the job ran

constexpr const char
    *kJobs = "(group by (cluster, namespace, nccl_job, uid, slurm_job_name,",
    *kAlive = "count(nccl_process_halted{", *kWaiting = "(job:nccl_waiting_gpu_seconds:rate{",
    *kWaitedFor = "comm_rank:nccl_waited_for", *kTargets = "group by (instance)",
    *kAlerts = "ALERTS{alertstate=\"firing\",alertname=~\"NCCL.+\",",
    *kDaemonAlerts = "NCCLExporter(Down|", *kKinds = "group without",
    *kTraffic = "nccl_(collective|p2p",
    *kLeast =
        "min by (comm, comm_name, collective) (sum by (comm, comm_name, collective, "
        "rank) (last_over_time",
    *kLosses = "(events_dropped|";

// A Prometheus that answers a query by the text that it has. It knows job 4711 of 8 processes,
// which ran for the last hour.
class ReportOfPrometheusTest : public testing::Test {
 protected:
  ReportOfPrometheusTest() {
    Add(kJobs,
        {{"nccl_job", "4711"}, {"slurm_job_name", "llm"}, {"uid", "1000"}, {"namespace", "ai"}}, 8);
    AddPoints(kAlive, {}, kBegin, kNow, 8);
    Add(kTargets, {{"instance", "10.0.0.1:9828"}}, 1);
  }

  void Add(const std::string& query, SampleLabels labels, double value) {
    answers_[query].push_back({.labels = std::move(labels), .time = kNow, .value = value});
  }
  void AddPoints(const std::string& query, SampleLabels labels, double from, double to,
                 double value) {
    Sample sample{.labels = std::move(labels), .time = to, .value = value};
    for (double time = from; time < to; time += kStep) sample.points.push_back({time, value});
    answers_[query].push_back(std::move(sample));
  }
  static SampleLabels RankOf(int rank, SampleLabels more = {}) {
    more.merge(SampleLabels{{"global_rank", std::to_string(rank)},
                            {"gpu", std::to_string(rank % 4)},
                            {"hostname", "node-" + std::to_string(rank / 4)},
                            {"instance", "10.0.0.1:9828"},
                            {"nccl_job", "4711"}});
    return more;
  }

  QueryAnswer Answer(const std::string& query, double time) {
    queries_.emplace_back(query, time);
    if (!fault_.empty()) throw std::runtime_error(fault_);
    QueryAnswer answer{.samples = {}, .warnings = warnings_};
    for (const auto& [part, samples] : answers_) {
      if (query.find(part) == std::string::npos) continue;
      // Counts from before.
      if ((part == kTraffic || part == kLosses) && query.find("[1h] offset") != std::string::npos)
        continue;
      answer.samples = samples;
    }
    return answer;
  }
  ReportAnswer Ask(const ReportRequest& request = {.wanted = {{"nccl_job", "4711"}}}) {
    return AnswerOfPrometheus(
        request, [&](const std::string& query, double time) { return Answer(query, time); }, kNow);
  }
  std::string FaultOf(const ReportRequest& request) {
    try {
      return Ask(request).Text(0);
    } catch (const std::runtime_error& wrong) {
      return wrong.what();
    }
  }

  std::map<std::string, Samples> answers_;
  std::vector<std::pair<std::string, double>> queries_;
  std::vector<std::string> warnings_;
  std::string fault_;
};

TEST_F(ReportOfPrometheusTest, WaitsAndTheRanksThatCausedThemAreSums) {
  AddPoints(kWaiting, {}, kBegin, kNow, 0.7);
  AddPoints(kWaitedFor, RankOf(3), kNow - 600, kNow, 0.1);
  AddPoints(kWaitedFor, RankOf(5), kBegin, kBegin + 600, 4);
  AddPoints(kWaitedFor, RankOf(5), kNow - 600, kNow, 1);
  auto& of_5 = answers_[kWaitedFor][1].points;  // one series with a gap
  of_5.insert(of_5.end(), answers_[kWaitedFor][2].points.begin(),
              answers_[kWaitedFor][2].points.end());
  answers_[kWaitedFor].pop_back();
  const Report report = *Ask().report;
  EXPECT_NEAR(report.gpu_seconds, 8 * 3600, 288);
  EXPECT_TRUE(report.knows_waiting);
  EXPECT_NEAR(report.waiting_gpu_seconds, 0.7 * 3600, 25);
  ASSERT_EQ(report.waited_for.size(), 2u);
  EXPECT_EQ(report.waited_for[0].labels.at("global_rank"), "5") << "it cost most";
  EXPECT_NEAR(report.waited_for[0].gpu_seconds, 3000, 5 * kStep);
  EXPECT_THAT(report.waited_for[0].times,
              ElementsAre(Pair(kBegin, kBegin + 600 - kStep), Pair(kNow - 600, kNow - kStep)));
}

TEST_F(ReportOfPrometheusTest, AlertsHaveTheTimesInWhichTheyFiredAndNamesOfRanks) {
  AddPoints(kAlerts, RankOf(5, {{"alertname", "NCCLHangCulprit"}, {"severity", "critical"}}),
            kNow - 480, kNow, 1);
  AddPoints(kAlerts, RankOf(5, {{"alertname", "NCCLStragglerRank"}, {"severity", "warning"}}),
            kBegin, kBegin + 600, 1);
  AddPoints(kDaemonAlerts,
            {{"alertname", "NCCLExporterDown"},
             {"instance", "10.0.0.1:9828"},
             {"namespace", "of-daemons"}},
            kNow - 60, kNow, 1);
  AddPoints(kDaemonAlerts, {{"alertname", "NCCLExporterDown"}, {"instance", "of-another:9828"}},
            kNow - 60, kNow, 1);
  const ReportAnswer answer = Ask();
  const std::vector<ReportEvent>& events = answer.report->events;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "NCCLStragglerRank");
  EXPECT_THAT(events[0].times, ElementsAre(Pair(kBegin, kBegin + 600 - kStep)));
  EXPECT_EQ(events[1].name, "NCCLHangCulprit");
  EXPECT_EQ(events[1].labels.count("nccl_job"), 0u) << "the report is of one job";
  EXPECT_EQ(events[2].name, "NCCLExporterDown");
  const std::string text = answer.Text(0);
  EXPECT_THAT(text, HasSubstr("22:07:00 to 22:14:45: a hang, by global rank 5 (GPU 1, node-1)."));
  EXPECT_THAT(text, testing::Not(HasSubstr("No alert fired")));
}

TEST_F(ReportOfPrometheusTest, AlertsThatAreInformationAreNoneAndAreSaid) {
  EXPECT_THAT(Ask().Text(0), HasSubstr("No alert fired, and no finding has lasted."));
  AddPoints(kAlerts, RankOf(5, {{"alertname", "NCCLJobNotJudged"}, {"severity", "info"}}), kBegin,
            kNow, 1);
  const std::string text = Ask().Text(0);
  EXPECT_THAT(text, HasSubstr("What is found is information alone."));
  EXPECT_THAT(text, testing::Not(HasSubstr("No alert fired")));
}

TEST_F(ReportOfPrometheusTest, TrafficIsCountedInTheTimeByCommunicatorAndFunction) {
  const auto count = [&](const char* name, double value) {
    Add(kTraffic,
        {{"__name__", name}, {"comm", "1"}, {"comm_name", "dp"}, {"collective", "AllReduce"}},
        value);
  };
  count("nccl_collective_operations_total", 100);
  count("nccl_collective_timed_operations_total", 100);
  count("nccl_collective_bytes_total", 1 << 20);
  count("nccl_collective_busy_seconds_total", 80);
  Add(kTraffic, {{"__name__", "nccl_p2p_send_operations_total"}, {"comm", "2"}}, 7);
  // Two communicators of one name, of 3 and 5 GPU seconds for each rank.
  for (const char* const comm : {"1", "3"}) {
    const SampleLabels labels{{"comm", comm}, {"comm_name", "dp"}, {"collective", "AllReduce"}};
    Add(kLeast, labels, comm == std::string("1") ? 12 : 20);
    Add("count by (comm, comm_name, collective)", labels, 4);
  }
  const ReportAnswer answer = Ask();
  ASSERT_EQ(answer.report->traffic.size(), 2u);
  const ReportTraffic& row = answer.report->traffic[0];
  EXPECT_EQ(row.comm_name, "dp");
  EXPECT_EQ(row.operations, 100);
  EXPECT_EQ(row.ranks, 8u);
  EXPECT_EQ(answer.report->traffic[1].collective, "Send");
  const std::string text = answer.Text(0);
  EXPECT_THAT(text, HasSubstr("dp            AllReduce      8         100  1.0 MiB"));
  EXPECT_THAT(text, HasSubstr("80 GPU s   60.0 %  800.00 ms  100.0 %\n"));
}

// Prometheus divides by the steps, here 2 in a second. The first part of the time begins before it.
TEST_F(ReportOfPrometheusTest, MeasuresAreTimesPerStepInPartsOfTheTime) {
  const double part = 3600.0 / 16;
  const auto add = [&](const std::string& query, const SampleLabels& labels, double value) {
    Sample sample{.labels = labels, .time = kNow, .value = value};
    for (double time = kBegin; time <= kNow; time += part) sample.points.push_back({time, value});
    answers_[query].push_back(std::move(sample));
  };
  add("1 / min(max by (comm) (rate(nccl_rank_steps_total", {}, 0.5);
  const SampleLabels dp{{"comm_name", "dp"}, {"collective", "AllReduce"}},
      unnamed{{"collective", "AllGather"}};
  const std::string by = "by (comm, comm_name, collective";
  const std::string least = "(min " + by + ") (sum " + by + ", rank) (rate";
  add(least, dp, 0.1);
  add(least, unnamed, 0.02);
  const Report report = *Ask().report;
  EXPECT_EQ(report.step, "step");
  ASSERT_EQ(report.measures.size(), 3u);
  EXPECT_EQ(report.measures[0].name, "step");
  EXPECT_THAT(report.measures[0].seconds, testing::Each(0.5));
  EXPECT_THAT(report.measures[0].seconds,
              testing::SizeIs(testing::AllOf(testing::Ge(15), testing::Le(16))));
  EXPECT_EQ(report.measures[1].name, "transfer in AllReduce of dp");
  EXPECT_THAT(report.measures[1].seconds, testing::Each(0.1));
  EXPECT_EQ(report.measures[2].name, "transfer in AllGather of communicators without a name");
  EXPECT_EQ(NameOf({.comm_name = "7fe9386794da767a", .collective = "AllGather"}),
            "AllGather of communicators without a name")
      << "an id is another one in each run";
}

TEST_F(ReportOfPrometheusTest, WithoutStepsTheRarestCollectiveIsOne) {
  const auto count = [&](const char* collective, double operations) {
    Add(kTraffic,
        {{"__name__", "nccl_collective_operations_total"},
         {"comm", "1"},
         {"collective", collective}},
        operations);
    Add("count by (comm, comm_name, collective)", {{"comm", "1"}, {"collective", collective}}, 8);
  };
  count("AllReduce", 80000);
  count("AllGather", 8000);
  count("Broadcast", 8);  // at the start
  AddPoints(
      "1 / (max(sum by (comm, rank) (rate(nccl_collective_operations_total{cluster=\"\","
      "namespace=\"ai\",nccl_job=\"4711\",uid=\"1000\",collective=\"AllGather\"",
      {}, kBegin, kNow, 3.6);
  const Report report = *Ask().report;
  EXPECT_EQ(report.step, "AllGather of 1");
  ASSERT_EQ(report.measures.size(), 1u);
  EXPECT_THAT(report.measures[0].seconds, testing::Each(3.6));
}

TEST_F(ReportOfPrometheusTest, LabelsThatDifferNameTheRanksOfTheRarerValue) {
  for (int rank = 0; rank < 8; ++rank) {
    SampleLabels labels =
        RankOf(rank, {{"plugin_version", rank == 5 ? "0.0.9" : "0.1.0"}, {"team", "a"}});
    labels.erase("gpu");
    Add(kKinds, labels, 1);
  }
  const ReportAnswer answer = Ask();
  ASSERT_EQ(answer.report->facts.size(), 3u) << "the job's own labels are none";
  EXPECT_EQ(answer.report->facts[0].value, "0.1.0");
  EXPECT_THAT(answer.report->facts[1].on, ElementsAre("global rank 5 on node-1"));
  EXPECT_THAT(answer.Text(0),
              HasSubstr("plugin_version  0.0.9          1  global rank 5 on node-1"));
}

TEST_F(ReportOfPrometheusTest, VariablesOfNcclThatDifferNameTheRanksThatHaveThem) {
  for (int rank = 0; rank < 8; ++rank) {
    const std::string hca = rank < 4 ? "" : " NCCL_IB_HCA=mlx5_0,mlx5_1 of=a b=c";
    const std::string all = fmt::format("NCCL_*={}~1a2b3c4d NCCL_DEBUG=WARN", rank < 4 ? 1 : 2);
    Add("nccl_process_environment_info",
        RankOf(rank, {{"variables", rank == 7 ? "NCCL_*=2~1a2b3c4d NCCL_DEBUG=WARN" : all + hca}}),
        1);
  }
  const ReportAnswer answer = Ask();
  EXPECT_THAT(answer.Text(0), HasSubstr("NCCL_IB_HCA  not set"));
  const auto hca =
      std::ranges::find(answer.report->facts, "mlx5_0,mlx5_1 of=a b=c", &ReportFact::value);
  ASSERT_NE(hca, answer.report->facts.end());
  EXPECT_EQ(hca->name, "NCCL_IB_HCA");
  EXPECT_THAT(hca->on, ElementsAre("global rank 4 on node-1", "global rank 5 on node-1",
                                   "global rank 6 on node-1"))
      << "not all variables of rank 7 are known";
  EXPECT_EQ(std::ranges::count(answer.report->facts, "NCCL_DEBUG", &ReportFact::name), 1);
  EXPECT_EQ(std::ranges::count(answer.report->facts, "NCCL_*", &ReportFact::name), 2);
}

// Regression: of processes with one pid the last one was left.
TEST_F(ReportOfPrometheusTest, ProcessesWithOnePidAreNamedByTheirPods) {
  for (int pod = 0; pod < 8; ++pod)
    Add("nccl_process_environment_info",
        {{"pid", "1"},
         {"pod", "trainer-" + std::to_string(pod)},
         {"container", "main"},
         {"hostname", "node-0"},
         {"variables", pod == 5 ? "NCCL_*=1~2b NCCL_IB_DISABLE=1" : "NCCL_*=0~1a"}},
        1);
  const auto facts = Ask().report->facts;
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0].processes, 7u);
  EXPECT_EQ(facts[1].value, "1");
  EXPECT_THAT(facts[1].on, ElementsAre("pid 1 of trainer-5/main on node-0"));
}

// Two hangs of one rank, of which the first becomes critical.
TEST_F(ReportOfPrometheusTest, EachHangHasASentenceWithItsTime) {
  for (const auto& [severity, begin, end] :
       {std::tuple("warning", 3000, 2400), {"critical", 2640, 1800}, {"warning", 900, 600}})
    AddPoints(kAlerts, RankOf(5, {{"alertname", "NCCLHangCulprit"}, {"severity", severity}}),
              kNow - begin, kNow - end, 1);
  const std::string text = Ask().Text(0);
  EXPECT_THAT(text, HasSubstr("21:25:00 to 21:44:45: a hang, by global rank 5 (GPU 1, node-1)."));
  EXPECT_THAT(text, HasSubstr("22:00:00 to 22:04:45: a hang, by global rank 5 (GPU 1, node-1)."));
}

TEST_F(ReportOfPrometheusTest, WithoutRulesOrGpuTimesWaitsAreNotKnown) {
  const ReportAnswer answer = Ask();
  EXPECT_FALSE(answer.report->knows_waiting);
  EXPECT_THAT(answer.Text(0), HasSubstr("Waits are not known"));
}

TEST_F(ReportOfPrometheusTest, QueriesAreOfTheJobInTheTimeInWhichItRan) {
  AddPoints(kWaiting, {}, kBegin, kNow, 0.7);
  Ask();
  for (const auto& [query, time] : queries_) {
    if (query.find(kDaemonAlerts) != std::string::npos) continue;
    EXPECT_THAT(query, HasSubstr("nccl_job=\"4711\"")) << query;
  }
  EXPECT_THAT(queries_[0].first, HasSubstr("[86400000ms]"));
  EXPECT_THAT(queries_.back().first, HasSubstr("_total\",cluster=\"\",namespace=\"ai\""));
  EXPECT_THAT(queries_.back().first, HasSubstr("[1h] offset 36")) << "what was counted before";
}

TEST_F(ReportOfPrometheusTest, WithoutALabelJobsInTroubleComeFirst) {
  Add(kJobs, {{"nccl_job", "4712"}, {"uid", "1000"}}, 16);
  Add("group by (cluster, namespace, nccl_job, uid, alertname)",
      {{"nccl_job", "4712"},
       {"uid", "1000"},
       {"alertname", "NCCLHangCulprit"},
       {"severity", "critical"}},
      1);
  Add("sum by (cluster, namespace, nccl_job, uid)", {{"nccl_job", "4712"}, {"uid", "1000"}}, 15);
  const ReportAnswer answer = Ask({});
  EXPECT_FALSE(answer.report);
  EXPECT_EQ(answer.Text(0),
            "JOB   NAME  NAMESPACE  USER  PROCESSES  GPUS WAIT  ALERT\n"
            "4712                   1000         16       15.0  NCCLHangCulprit\n"
            "4711  llm   ai         1000          8\n"
            "Choose one with --job, --namespace, --cluster and --uid. An empty value is a job "
            "without it.\n");
  EXPECT_EQ(nlohmann::json::parse(answer.Json())["jobs"][0]["trouble"], "NCCLHangCulprit");
  EXPECT_THAT(queries_[0].first, HasSubstr("[300000ms]")) << "jobs of now";
  EXPECT_TRUE(Ask({.wanted = {{"nccl_job", "4712"}}}).report);
}

TEST_F(ReportOfPrometheusTest, AFaultIsOneLine) {
  EXPECT_THAT(FaultOf({.wanted = {{"nccl_job", "99"}}}),
              HasSubstr("no job has nccl_job='99'; there is job 4711 (llm) of user 1000"));
  warnings_ = {"store-1: timeout"};
  EXPECT_THAT(FaultOf({.wanted = {{"nccl_job", "99"}}}),
              HasSubstr("; the answer is incomplete: store-1: timeout"));
  EXPECT_THAT(FaultOf({.wanted = {{"nccl_job", "4711"}}}),
              HasSubstr("The answer is incomplete: store-1: timeout."));
  fault_ = "cannot reach";
  EXPECT_EQ(FaultOf({}), "cannot reach");
}

TEST(MomentTest, IsADateOrTheLastTimeOfDay) {
  EXPECT_EQ(MomentIn("2023-11-14T22:15", 0), kNow);
  EXPECT_EQ(MomentIn("2023-11-14 22:15:01Z", 0), kNow + 1);
  EXPECT_EQ(MomentIn("2023-11-15", 0), kNow + 6300) << "midnight";
  EXPECT_EQ(MomentIn("22:14", kNow), kNow - 60);
  EXPECT_EQ(MomentIn("22:16", kNow), kNow + 60 - 86400);
  for (const char* const text : {"", "3", "now", "22:15 PM", "2023-11", "25:00"})
    EXPECT_EQ(MomentIn(text, kNow), std::nullopt) << text;
}

TEST(MomentTest, ATimeSpanEndsNow) {
  const auto length = [](const ReportRequest& request) { return TimeOf(request, kNow).seconds(); };
  EXPECT_EQ(length({}), kListSeconds);
  EXPECT_EQ(length({.wanted = {{"uid", "1"}}}), kReportSeconds);
  EXPECT_EQ(length({.at = kNow - 300}), kAroundSeconds + 300) << "the future is not known";
  EXPECT_EQ(length({.since = std::chrono::hours(1)}), 3600);
  EXPECT_EQ(length({.from = kNow - 60, .to = kNow - 30}), 30);
  EXPECT_THROW(length({.from = kNow + 60}), std::runtime_error);
  EXPECT_THROW(length({.from = 0}), std::runtime_error) << "longer than three years";
}

}  // namespace
}  // namespace nccl_exporter::exporter
