// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNow = 1700000100;  // 2023-11-14T22:15:00Z
constexpr const char *kJobs = "(nccl_rank_info))", *kAlerts = "ALERTS{", *kRecorded = "{__name__=~",
                     *kRulesTime = "max(timestamp(";

// A Prometheus that answers a query by the text that it has. It knows job 4711 of 8 processes.
class JobAnswerTest : public testing::Test {
 protected:
  JobAnswerTest() {
    AddJob({{"nccl_job", "4711"},
            {"slurm_job_name", "llm-7b"},
            {"uid", "1000"},
            {"namespace", "research"}},
           8);
    Add(kRulesTime, {}, kNow - 5);
    Record("comm:nccl_progress:changes", {{"comm", "0123456789abcdef"}}, 240);
  }

  void Add(const std::string& query, SampleLabels labels, double value) {
    answers_[query].push_back({.labels = std::move(labels), .time = kNow, .value = value});
  }
  void AddJob(SampleLabels labels, double processes) { Add(kJobs, std::move(labels), processes); }
  void Record(const std::string& name, SampleLabels labels, double value) {
    labels["__name__"] = name;
    Add(kRecorded, std::move(labels), value);
  }
  void Fire(const std::string& alert, const std::string& severity, SampleLabels labels,
            double since = kNow - 480) {
    labels.merge(SampleLabels{
        {"__name__", "ALERTS_FOR_STATE"}, {"alertname", alert}, {"severity", severity}});
    Add(kAlerts, std::move(labels), since);
  }
  static SampleLabels RankOf(int rank) {
    return {{"global_rank", std::to_string(rank)},
            {"gpu", std::to_string(rank % 4)},
            {"hostname", "node-" + std::to_string(rank / 4)},
            {"instance", "10.0.0.1:9828"},
            {"pid", std::to_string(1000 + rank)}};
  }
  // Rank 3 does not enter a collective.
  void Hang() {
    answers_.erase(kRecorded);
    SampleLabels rank = RankOf(3);
    Fire("NCCLHangCulprit", "critical", rank);
    Record("process:nccl_hang:culprit", rank, 1);
    Record("comm_rank:nccl_hang:waiting", {{"comm", "0123456789abcdef"}, {"comm_name", "world"}},
           7);
    Record("comm:nccl_progress:changes", {{"comm", "0123456789abcdef"}}, 0);
    Record("job:nccl_waiting_gpu_seconds:rate", {{"nccl_job", "4711"}}, 7);
  }

  std::string Text(const JobRequest& request = {}, size_t columns = 80) {
    const AskPrometheus ask = [&](const std::string& query) {
      queries_.push_back(query);
      if (!fault_.empty()) throw std::runtime_error(fault_);
      QueryAnswer answer{.samples = {}, .warnings = warnings_};
      for (const auto& [part, samples] : answers_) {
        if (query.find(part) != std::string::npos) answer.samples = samples;
      }
      return answer;
    };
    failure_.clear();
    try {
      return AnswerAbout(request, ask, columns);
    } catch (const std::runtime_error& wrong) {
      failure_ = wrong.what();
      return "";
    }
  }
  json Read() { return json::parse(Text({.is_json = true})); }

  std::map<std::string, Samples> answers_;
  std::vector<std::string> queries_, warnings_;
  std::string fault_, failure_;
};

TEST_F(JobAnswerTest, AJobThatRunsHasNoAlertAndItsProgress) {
  EXPECT_EQ(Text(),
            "Job 4711 (llm-7b) of user 1000 in namespace research: 8 processes,\n"
            "2023-11-14T22:15Z\n"
            "\n"
            "No alert fires.\n"
            "\n"
            "Recorded by the rules, 5.0 s ago:\n"
            "SERIES                      VALUE  COMMUNICATOR\n"
            "comm:nccl_progress:changes    240  0123456789abcdef\n");
}

TEST_F(JobAnswerTest, AHangIsWhatAlertsAndRulesSay) {
  Hang();
  EXPECT_THAT(Text({}, 0),
              testing::EndsWith(
                  "\n\n"
                  "ALERT            SEVERITY    FOR  GLOBAL RANK  GPU  NODE     PID\n"
                  "NCCLHangCulprit  critical  8 min            3    3  node-0  1003\n"
                  "\n"
                  "Recorded by the rules, 5.0 s ago:\n"
                  "SERIES                             VALUE  GLOBAL RANK  COMMUNICATOR      GPU  "
                  "NODE     PID\n"
                  "job:nccl_waiting_gpu_seconds:rate      7\n"
                  "process:nccl_hang:culprit              1            3                      3  "
                  "node-0  1003\n"
                  "comm_rank:nccl_hang:waiting            7               world\n"
                  "comm:nccl_progress:changes             0               0123456789abcdef\n"));
}

TEST_F(JobAnswerTest, EachLineFitsItsColumns) {
  Hang();
  warnings_ = {"store-1 did not answer in time: context deadline exceeded"};
  for (const size_t columns : {60, 80, 120}) {
    std::istringstream text(Text({}, columns));
    for (std::string line; std::getline(text, line);) EXPECT_LE(Width(line), columns) << line;
  }
}

TEST_F(JobAnswerTest, QueriesAreOfTheJobAlone) {
  Text();
  ASSERT_EQ(queries_.size(), 4u);
  for (size_t i = 1; i < queries_.size(); ++i)
    EXPECT_THAT(queries_[i],
                HasSubstr("cluster=\"\",namespace=\"research\",nccl_job=\"4711\",uid=\"1000\"}"));
}

TEST_F(JobAnswerTest, AlertsAreInTheOrderOfTheirSeverityAndAge) {
  Fire("NCCLJobNotJudged", "info", {}, kNow - 9000);
  Fire("NCCLStragglerRank", "warning", RankOf(10), kNow - 60);
  Fire("NCCLStragglerRank", "warning", RankOf(9), kNow - 60);
  Fire("NCCLRanksMissing", "warning", RankOf(4), kNow - 600);
  Fire("NCCLHangCulprit", "critical", RankOf(5), kNow - 30);
  std::vector<std::string> shown;
  const json answer = Read();
  for (const json& alert : answer["alerts"])
    shown.push_back(alert["labels"]["alertname"].get<std::string>() + ' ' +
                    alert["labels"].value("global_rank", "-"));
  EXPECT_THAT(shown, ElementsAre("NCCLHangCulprit 5", "NCCLRanksMissing 4", "NCCLStragglerRank 9",
                                 "NCCLStragglerRank 10", "NCCLJobNotJudged -"));
}

TEST_F(JobAnswerTest, AlertsOfAnothersTargetAreLeftOut) {
  for (const char* const user : {"1000", "1001"})
    Fire("NCCLExporterSegmentsUnusable", "warning", {{"instance", "node-0:9828"}, {"uid", user}});
  Fire("NCCLExporterDown", "warning", {{"instance", "node-1:9828"}, {"cluster", "b"}});
  Fire("NCCLExporterDown", "warning", {{"instance", "node-1:9828"}});
  const json alerts = Read()["alerts"];
  ASSERT_EQ(alerts.size(), 2u) << alerts;
  EXPECT_EQ(alerts[0]["labels"].value("uid", ""), "1000");
  EXPECT_EQ(alerts[1]["labels"].value("uid", ""), "");
}

// A server may not have the series of Prometheus' own state.
TEST_F(JobAnswerTest, AnAlertWithoutItsStartIsShown) {
  Fire("NCCLHangCulprit", "critical", RankOf(5), 1);
  EXPECT_THAT(Text(), HasSubstr("NCCLHangCulprit  critical    -            5"));
  EXPECT_TRUE(Read()["alerts"][0]["since"].is_null());
}

TEST_F(JobAnswerTest, ALongListOfOneSeriesHidesNoOther) {
  answers_.erase(kRecorded);
  for (int rank = 0; rank < 100; ++rank) Record("process:nccl_hang:halted", RankOf(rank), 1);
  Record("comm_rank:nccl_straggler:deficit", RankOf(7), 0.0412);
  Record("comm_rank:nccl_straggler:deficit", RankOf(8), 0.1064);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("80 more of process:nccl_hang:halted: --json has all.\n"));
  const size_t first = text.find("comm_rank:nccl_straggler:deficit  0.1064            8");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_GT(text.find("comm_rank:nccl_straggler:deficit  0.0412            7"), first);
  EXPECT_EQ(Read()["series"].size(), 102u);
}

TEST_F(JobAnswerTest, ProgressBeginsWithTheCommunicatorThatStands) {
  Record("comm:nccl_progress:changes", {{"comm", "b"}}, 0);
  const json series = Read()["series"];
  EXPECT_EQ(series[0]["labels"]["comm"], "b");
  EXPECT_EQ(series[1]["value"], 240);
}

TEST_F(JobAnswerTest, JsonHasAllLabels) {
  Hang();
  const json answer = Read();
  EXPECT_EQ(answer["warnings"].size(), 0u);
  EXPECT_EQ(answer["job"], (json{{"nccl_job", "4711"},
                                 {"uid", "1000"},
                                 {"namespace", "research"},
                                 {"cluster", ""},
                                 {"slurm_job_names", {"llm-7b"}},
                                 {"processes", 8}}));
  EXPECT_EQ(answer["taken"], kNow);
  EXPECT_EQ(answer["rules_evaluated"], kNow - 5);
  EXPECT_EQ(answer["alerts"][0]["since"], kNow - 480);
  json labels = RankOf(3);
  EXPECT_EQ(answer["series"][1],
            (json{{"name", "process:nccl_hang:culprit"}, {"value", 1}, {"labels", labels}}));
  labels.update(json{{"alertname", "NCCLHangCulprit"}, {"severity", "critical"}});
  EXPECT_EQ(answer["alerts"][0]["labels"], labels);
}

TEST_F(JobAnswerTest, LabelsHoldNoControlSequences) {
  Record("comm:nccl_hang:seconds", {{"comm_name", "a\x1b[2J\nb"}}, 120);
  EXPECT_THAT(Text(), HasSubstr("a?[2J?b"));
  EXPECT_EQ(Read()["series"][0]["labels"]["comm_name"], "a?[2J?b");
}

TEST_F(JobAnswerTest, APartOfAnAnswerIsNotTakenForTheWhole) {
  warnings_ = {"store-1: timeout", "store-1: timeout"};
  EXPECT_TRUE(Text().starts_with("answer is incomplete: store-1: timeout\nJob 4711 "));
  EXPECT_EQ(Read()["warnings"], json({"store-1: timeout"}));
  EXPECT_EQ(Text({.wanted = {{"nccl_job", "99"}}}), "");
  EXPECT_THAT(failure_, testing::EndsWith("; the answer is incomplete: store-1: timeout"));
  AddJob({{"nccl_job", "4712"}, {"uid", "1000"}}, 16);
  EXPECT_TRUE(Text().starts_with("answer is incomplete: store-1: timeout\nJOB "));
  EXPECT_EQ(Read()["warnings"].size(), 1u);
}

TEST_F(JobAnswerTest, WithoutRulesNothingIsSaidToBeWell) {
  answers_.erase(kRulesTime);
  answers_.erase(kRecorded);
  EXPECT_THAT(Text({}, 0),
              HasSubstr("\nThe rules have no series of this job, so no alert can fire: "
                        "they are not loaded (deploy/prometheus)"));
  EXPECT_TRUE(Read()["rules_evaluated"].is_null());
}

TEST_F(JobAnswerTest, SeveralJobsAreListed) {
  AddJob({{"nccl_job", "4711"},
          {"slurm_job_name", "eval"},
          {"uid", "1000"},
          {"namespace", "research"}},
         2);
  AddJob({{"nccl_job", "4712"}, {"uid", "1001"}}, 16);
  EXPECT_EQ(Text(),
            "JOB   NAME          NAMESPACE  CLUSTER  USER  PROCESSES\n"
            "4712                                    1001         16\n"
            "4711  eval, llm-7b  research            1000         10\n"
            "Choose one with --job, --namespace, --cluster and --uid. An empty value is a "
            "job\n"
            "without it.\n");
  EXPECT_EQ(Read()["jobs"][1]["slurm_job_names"], json({"eval", "llm-7b"}));
}

TEST_F(JobAnswerTest, AJobIsChosenByAllGivenLabels) {
  AddJob({{"nccl_job", "4711"}, {"uid", "1001"}, {"cluster", "b"}}, 16);
  const auto processes = [&](const SampleLabels& wanted) {
    const std::string text = Text({.wanted = wanted, .is_json = true});
    return text.empty() ? json(failure_) : json::parse(text)["job"]["processes"];
  };
  EXPECT_EQ(processes({{"uid", "1001"}}), 16);
  EXPECT_EQ(processes({{"nccl_job", "4711"}, {"cluster", ""}}), 8);
  EXPECT_EQ(processes({{"nccl_job", "4711"}, {"namespace", ""}}), 16);
  EXPECT_EQ(
      processes({{"nccl_job", "4712"}, {"uid", "1000"}}),
      json("no job has nccl_job='4712', uid='1000'; there are job 4711 (llm-7b) of user 1000 in "
           "namespace research; job 4711 of user 1001 in cluster b"));
}

TEST_F(JobAnswerTest, WithoutAnAnswerItSaysWhy) {
  answers_.clear();
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(failure_, "there is no nccl_rank_info: no daemon is scraped, or no job runs");
  fault_ = "cannot reach http://localhost:9090: Connection refused";
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(failure_, fault_);
}

}  // namespace
}  // namespace nccl_exporter::exporter
