// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/verdict.h"

#include <gtest/gtest.h>

#include "tests/detection/scoreboard.h"

namespace nccl_exporter::detection {
namespace {

constexpr double kEnd = 100;
const std::map<std::string, std::string> kClasses{
    {"SlowRank", "straggler"}, {"Hang", "hang"}, {"Stalled", ""}};
const Directory kDirectory{.global_ranks = {{{"c0", "1"}, 9}, {{"c0", "2"}, 17}},
                           .ranks_per_node = 8};

PagedAlert Alert(const std::string& name, double started_s,
                 std::map<std::string, std::string> labels = {}) {
  labels["alertname"] = name;
  return {.labels = std::move(labels), .started_s = started_s, .seen_s = kEnd};
}

Scenario Expecting(std::vector<Expectation> expected) {
  Scenario scenario;
  scenario.seconds = kEnd;
  scenario.expected = std::move(expected);
  return scenario;
}

Scenario SlowRank() { return Expecting({{.alert = "straggler", .rank = 9, .from = 20}}); }

TEST(Verdict, AnAlertThatNamesTheRankIsRight) {
  const Verdict verdict = Judge(
      SlowRank(), {Alert("SlowRank", 31, {{"comm", "c0"}, {"rank", "1"}})}, kDirectory, kClasses);
  const ClassVerdict& counts = verdict.classes.at("straggler");
  EXPECT_EQ(counts.met, 1);
  EXPECT_EQ(counts.true_alarms, 1);
  EXPECT_EQ(counts.named_right, 1);
  EXPECT_EQ(counts.delays_s, std::vector<double>{11});
  EXPECT_TRUE(verdict.complaints.empty());
}

TEST(Verdict, AnAlertThatNamesAnotherRankIsATrueAlarmWithTheWrongName) {
  const Verdict verdict = Judge(
      SlowRank(), {Alert("SlowRank", 31, {{"comm", "c0"}, {"rank", "2"}})}, kDirectory, kClasses);
  const ClassVerdict& counts = verdict.classes.at("straggler");
  EXPECT_EQ(counts.met, 0);
  EXPECT_EQ(counts.true_alarms, 1);
  EXPECT_EQ(counts.named_wrong, 1);
  EXPECT_EQ(verdict.complaints.size(), 2u);
}

TEST(Verdict, AnAlertBeforeTheFaultIsFalse) {
  const Verdict verdict = Judge(
      SlowRank(), {Alert("SlowRank", 15, {{"comm", "c0"}, {"rank", "1"}})}, kDirectory, kClasses);
  EXPECT_EQ(verdict.classes.at("straggler").false_alarms, 1);
  EXPECT_EQ(verdict.classes.at("straggler").met, 0);
}

TEST(Verdict, AnAlertOfAnotherClassIsFalseUnlessItMayAccompany) {
  Scenario scenario = SlowRank();
  EXPECT_EQ(
      Judge(scenario, {Alert("Hang", 31)}, kDirectory, kClasses).classes.at("hang").false_alarms,
      1);
  scenario.tolerated = {{.alert = "hang", .from = 20}};
  EXPECT_FALSE(Judge(scenario, {Alert("Hang", 31)}, kDirectory, kClasses).classes.contains("hang"));
  EXPECT_TRUE(Judge(scenario, {Alert("Hang", 15)}, kDirectory, kClasses).classes.contains("hang"));
}

TEST(Verdict, AnAlertThatOnlyInformsDoesNotCount) {
  const Verdict verdict =
      Judge(Expecting({}), {Alert("Stalled", 31), Alert("Unheard", 31)}, kDirectory, kClasses);
  EXPECT_TRUE(verdict.classes.empty());
  EXPECT_TRUE(verdict.complaints.empty());
}

TEST(Verdict, ANodeIsNamedByItsRanksOrByTheInstance) {
  const Scenario scenario = Expecting({{.alert = "straggler", .node = 2, .from = 20}});
  for (const std::map<std::string, std::string>& labels :
       {std::map<std::string, std::string>{{"comm", "c0"}, {"rank", "2"}},
        {{"instance", "node-2:9828"}},
        {{"global_rank", "23"}}}) {
    EXPECT_EQ(Judge(scenario, {Alert("SlowRank", 31, labels)}, kDirectory, kClasses)
                  .classes.at("straggler")
                  .met,
              1);
  }
  EXPECT_EQ(
      Judge(scenario, {Alert("SlowRank", 31, {{"instance", "node-1:9828"}})}, kDirectory, kClasses)
          .classes.at("straggler")
          .named_wrong,
      1);
}

TEST(Verdict, TheRankInTheCommunicatorCountsMoreThanTheNumberOfTheProcess) {
  const Verdict verdict = Judge(
      SlowRank(), {Alert("SlowRank", 31, {{"comm", "c0"}, {"rank", "1"}, {"global_rank", "2"}})},
      kDirectory, kClasses);
  EXPECT_EQ(verdict.classes.at("straggler").named_right, 1);
  EXPECT_TRUE(verdict.complaints.empty());
}

TEST(Verdict, ARankWithoutANumberIsNamedByNodeAndGpu) {
  const auto met = [](const char* gpu) {
    return Judge(SlowRank(),
                 {Alert("SlowRank", 31, {{"instance", "node-1:9828"}, {"gpu", gpu}})}, kDirectory,
                 kClasses)
        .classes.at("straggler")
        .met;
  };
  EXPECT_EQ(met("1"), 1);
  EXPECT_EQ(met("2"), 0);
}

TEST(Verdict, AnExpectationThatNobodyMeetsIsMissed) {
  const Verdict verdict = Judge(SlowRank(), {}, kDirectory, kClasses);
  EXPECT_EQ(verdict.classes.at("straggler").expected, 1);
  EXPECT_EQ(verdict.classes.at("straggler").met, 0);
  EXPECT_EQ(verdict.complaints, std::vector<std::string>{"missed: straggler"});
}

TEST(Verdict, WhatMayAccompanyMustNameTheSame) {
  Scenario scenario = SlowRank();
  scenario.tolerated = {{.alert = "hang", .rank = 9, .from = 20}};
  const auto hangs = [&](const std::string& rank) {
    const PagedAlert alert = Alert("Hang", 31, {{"comm", "c0"}, {"rank", rank}});
    return Judge(scenario, {alert}, kDirectory, kClasses).classes.contains("hang");
  };
  EXPECT_FALSE(hangs("1"));
  EXPECT_TRUE(hangs("2"));
}

TEST(Verdict, AnExpectationMayAskForOneAlertOfItsClass) {
  Scenario scenario = SlowRank();
  scenario.expected[0].name = "SlowNode";
  const Verdict verdict = Judge(scenario, {Alert("SlowRank", 31, {{"comm", "c0"}, {"rank", "1"}})},
                                kDirectory, kClasses);
  EXPECT_EQ(verdict.classes.at("straggler").met, 0);
  EXPECT_EQ(verdict.classes.at("straggler").true_alarms, 1);
  EXPECT_EQ(verdict.complaints, std::vector<std::string>{"missed: SlowNode"});
}

TEST(Verdict, AnAlertOfAnotherJobIsFalse) {
  Scenario scenario = SlowRank();
  scenario.expected[0].job = "llama";
  const auto judged = [&](const std::string& job) {
    return Judge(
        scenario,
        {Alert("SlowRank", 31, {{"comm", "c0"}, {"rank", "1"}, {"nccl_job", job}})}, kDirectory,
        kClasses);
  };
  EXPECT_TRUE(judged("llama").complaints.empty());
  EXPECT_EQ(judged("mixtral").classes.at("straggler").false_alarms, 1);
  EXPECT_EQ(judged("mixtral").classes.at("straggler").met, 0);
}

TEST(Verdict, AnAlertOfAnotherSeverityIsFalse) {
  const Scenario save = Expecting({{.alert = "hang", .severity = "warning", .from = 20, .to = 70}});
  const auto judged = [&](const std::string& severity) {
    PagedAlert hang = Alert("Hang", 31, {{"severity", severity}});
    hang.seen_s = 70;
    return Judge(save, {hang}, kDirectory, kClasses);
  };
  EXPECT_TRUE(judged("warning").complaints.empty());
  EXPECT_EQ(judged("critical").classes.at("hang").false_alarms, 1);
}

TEST(Verdict, AnyRankOfTheProcessMayBeNamed) {
  Scenario scenario = Expecting({{.alert = "straggler", .rank = 11, .ranks = 4, .from = 20}});
  const auto met = [&](const std::string& global_rank) {
    return Judge(scenario, {Alert("SlowRank", 31, {{"global_rank", global_rank}})}, kDirectory,
                 kClasses)
        .classes.at("straggler")
        .met;
  };
  EXPECT_EQ(met("8"), 1);
  EXPECT_EQ(met("12"), 0);
}

TEST(Verdict, AnAlertStaysAsLongAsTheTrouble) {
  PagedAlert first = Alert("SlowRank", 31, {{"global_rank", "9"}});
  first.seen_s = 60;
  const auto complaints = [&](std::vector<PagedAlert> alerts) {
    return Judge(SlowRank(), alerts, kDirectory, kClasses).complaints;
  };
  EXPECT_EQ(complaints({first}), std::vector<std::string>{"forgotten: straggler at 60.0 s"});
  EXPECT_EQ(complaints({first, Alert("SlowRank", 70, {{"global_rank", "9"}})}),
            std::vector<std::string>{"interrupted: straggler at 60.0 s"});
  EXPECT_TRUE(complaints({first, Alert("SlowRank", 62, {{"global_rank", "9"}})}).empty());
}

TEST(Verdict, AnAlertEndsWithTheTrouble) {
  Scenario scenario = SlowRank();
  scenario.expected[0].to = 50;
  const auto complaints = [&](double started_s, double seen_s) {
    PagedAlert alert = Alert("SlowRank", started_s, {{"global_rank", "9"}});
    alert.seen_s = seen_s;
    const Verdict verdict = Judge(scenario, {Alert("Stalled", 40), alert}, kDirectory, kClasses);
    return verdict.complaints.size();
  };
  EXPECT_EQ(complaints(31, 70), 0u);
  EXPECT_EQ(complaints(31, 90), 1u);  // not over
  EXPECT_EQ(complaints(31, 40), 1u);  // forgotten
  EXPECT_EQ(complaints(60, 70), 2u);  // false, and missed
}

TEST(PageExpectations, ThePageOfTheRanksOwnNodeNamesIt) {
  const Scenario scenario = WithPageExpectations(SlowRank());
  const std::map<std::string, std::string> classes{{"page:late_rank", "page-straggler"},
                                                   {"SlowRank", "straggler"}};
  const Verdict verdict =
      Judge(scenario,
            {Alert("SlowRank", 31, {{"comm", "c0"}, {"rank", "1"}}),
             Alert("page:late_rank", 30, {{"comm", "c0"}, {"rank", "2"}, {"node", "1"}})},
            kDirectory, classes);
  EXPECT_EQ(verdict.classes.at("straggler").met, 1);
  EXPECT_EQ(verdict.classes.at("page-straggler").met, 0);
  EXPECT_EQ(verdict.classes.at("page-straggler").named_wrong, 1);
}

TEST(PageExpectations, ANodeThatIsLateAsAWholeCannotKnowIt) {
  const Scenario scenario =
      WithPageExpectations(Expecting({{.alert = "straggler", .node = 2, .from = 20}}));
  const Verdict verdict = Judge(scenario, {}, kDirectory, kClasses);
  EXPECT_FALSE(verdict.classes.contains("page-straggler"));
}

TEST(PageExpectations, ARankWithoutPeersOnItsNodeNeedNotBeFoundThere) {
  Scenario scenario = SlowRank();
  scenario.expected.front().is_on_page = false;
  scenario = WithPageExpectations(scenario);
  const std::map<std::string, std::string> classes{{"page:late_rank", "page-straggler"}};
  const auto judged = [&](const char* rank) {
    return Judge(scenario, {Alert("page:late_rank", 30, {{"comm", "c0"}, {"rank", rank}})},
                 kDirectory, classes);
  };
  EXPECT_FALSE(judged("1").classes.contains("page-straggler"));
  EXPECT_EQ(judged("2").classes.at("page-straggler").false_alarms, 1);
}

TEST(PageExpectations, AProcessWithSeveralRanksIsFoundByAnyOfThem) {
  Scenario process = Expecting({{.alert = "culprit", .rank = 9, .ranks = 4, .from = 20}});
  process.jobs = {{.ranks_per_node = 8}};
  const std::map<std::string, std::string> classes{{"page:process_killed", "page-culprit"}};
  const auto met = [&](const std::string& node) {
    // Without a communicator its rank names nobody.
    const PagedAlert finding = Alert("page:process_killed", 30, {{"rank", "0"}, {"node", node}});
    return Judge(WithPageExpectations(process), {finding}, kDirectory, classes)
        .classes.at("page-culprit")
        .met;
  };
  EXPECT_EQ(met("1"), 1);
  EXPECT_EQ(met("0"), 0);
}

TEST(PageExpectations, AHangIsFoundOnceThoughItBecomesCritical) {
  const auto expected = [](const std::string& severity) {
    return WithPageExpectations(Expecting({{.alert = "culprit", .severity = severity, .rank = 9}}))
        .expected.size();
  };
  EXPECT_EQ(expected("warning"), 2u);
  EXPECT_EQ(expected("critical"), 1u);
}

TEST(PageExpectations, AFindingWhereNothingIsWrongIsFalse) {
  Scoreboard scoreboard;
  const Scenario quiet = WithPageExpectations(Expecting({}));
  const std::map<std::string, std::string> classes{{"page:late_rank", "page-straggler"}};
  scoreboard.Add(quiet, Judge(quiet, {Alert("page:late_rank", 30)}, kDirectory, classes));
  const nlohmann::json json = scoreboard.Json(1);
  EXPECT_EQ(json["silent"]["hits"], 1);
  EXPECT_EQ(json["silent_pages"]["hits"], 0);
}

TEST(Share, KnowsHowSureItIs) {
  const Share all{.hits = 20, .of = 20};
  EXPECT_NEAR(all.low(), 0.8389, 1e-4);  // the textbook's value
  EXPECT_EQ(all.high(), 1);
  const Share half{.hits = 5, .of = 10};
  EXPECT_NEAR(half.low(), 0.2366, 1e-4);
  EXPECT_NEAR(half.high(), 0.7634, 1e-4);
  EXPECT_EQ((Share{.hits = 0, .of = 0}).Text(), "-");
}

TEST(Scoreboard, AddsUpWhatTheRunsWereWorth) {
  Scoreboard scoreboard;
  scoreboard.Add(SlowRank(), Judge(SlowRank(), {Alert("SlowRank", 26, {{"global_rank", "9"}})},
                                   kDirectory, kClasses));
  scoreboard.Add(SlowRank(), Judge(SlowRank(), {}, kDirectory, kClasses));
  scoreboard.Add(Expecting({}), Judge(Expecting({}), {Alert("Hang", 5)}, kDirectory, kClasses));
  EXPECT_EQ(scoreboard.flawed_runs(), 2);
  const std::string table = scoreboard.Table(2);
  EXPECT_NE(table.find("50.0 % [9.5, 90.5] 1/2"), std::string::npos) << table;
  EXPECT_NE(table.find("3 / 3"), std::string::npos) << table;
  EXPECT_NE(table.find("0.0 % [0.0, 79.3] 0/1"), std::string::npos) << table;
  EXPECT_NE(table.find("3 runs, 2 with a flaw"), std::string::npos) << table;
  const nlohmann::json json = scoreboard.Json(2);
  EXPECT_EQ(json["flawed"], 2);
  EXPECT_EQ(json["classes"]["straggler"]["recall"]["share"], 0.5);
  EXPECT_EQ(json["classes"]["straggler"]["delay_intervals"]["most"], 3);
  EXPECT_EQ(json["silent"]["hits"], 0);
}

TEST(Scoreboard, CountsTheAlertsOfARunOnce) {
  Scoreboard scoreboard;
  const std::vector<PagedAlert> many(20, Alert("SlowRank", 26, {{"global_rank", "9"}}));
  scoreboard.Add(SlowRank(), Judge(SlowRank(), many, kDirectory, kClasses));
  std::vector<PagedAlert> one_is_wrong = many;
  one_is_wrong.back().labels["global_rank"] = "3";
  scoreboard.Add(SlowRank(), Judge(SlowRank(), one_is_wrong, kDirectory, kClasses));
  const nlohmann::json json = scoreboard.Json(1)["classes"]["straggler"];
  EXPECT_EQ(json["precision"]["of"], 2);
  EXPECT_EQ(json["precision"]["hits"], 2);
  EXPECT_EQ(json["named_right"]["of"], 2);
  EXPECT_EQ(json["named_right"]["hits"], 1);
}

}  // namespace
}  // namespace nccl_exporter::detection
