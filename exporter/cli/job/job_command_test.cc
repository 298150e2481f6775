// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "exporter/cli/job/recorded_job.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNow = RecordedJob::kNow;
constexpr const char* kWorld = "0123456789abcdef";
constexpr const char* kJobLine =
    "Job 4711 (llm-7b) of user 1000 in namespace research, 2023-11-14T22:15Z\n";

// Job 4711 of 8 ranks on two nodes, in one communicator that moves.
class JobCommandTest : public testing::Test, public RecordedJob {
 protected:
  JobCommandTest() {
    AddJob({{"nccl_job", "4711"},
            {"slurm_job_name", "llm-7b"},
            {"uid", "1000"},
            {"namespace", "research"}},
           8);
    AddCommunicator(kWorld, "world", {0, 1, 2, 3, 4, 5, 6, 7}, 240);
    Add("process:nccl_busy_seconds:rate{", {}, 8);
    Add("(nccl_collective_started_sequence{", {{"comm", kWorld}}, 101);
  }

  // Rank 3 does not enter the 101st collective.
  void Hang() {
    Forget("comm:nccl_progress:changes{");
    Add("comm:nccl_progress:changes{", {{"comm", kWorld}}, 0);
    Quiet(kWorld, {0, 1, 2, 4, 5, 6, 7}, 101, 1, "AllGather");
    Quiet(kWorld, {3}, 100, 0);
    Wait(kWorld, {0, 1, 2, 4, 5, 6, 7});
    IsCulprit(kWorld, 3, 1);
    Fire("NCCLHangCulprit", "critical", RankOf(kWorld, 3));
  }
  void AddClocks(double ahead_of_node_1 = 0) {
    Add("- timestamp(nccl_exporter_snapshot_timestamp_seconds{", {{"instance", "node-0:9828"}}, 0);
    Add("- timestamp(nccl_exporter_snapshot_timestamp_seconds{", {{"instance", "node-1:9828"}},
        ahead_of_node_1);
  }
};

TEST_F(JobCommandTest, AJobThatRunsIsThreeShortParts) {
  EXPECT_EQ(Text(), std::string(kJobLine) +
                        "8 processes on 2 nodes in 1 communicator.\n"
                        "\n"
                        "No alert fires.\n"
                        "\n"
                        "No alert names a rank, and no process has ended or is stopped.\n"
                        "\n"
                        "COMMUNICATOR  RANKS  NODES  STARTED  FOR  STATE\n"
                        "world             8      2      101    -  moves\n");
}

TEST_F(JobCommandTest, AHangNamesTheRankOfTheAlertAndSinceWhen) {
  Hang();
  AddClocks();
  Add("job:nccl_waiting_gpu_seconds:rate", {}, 7);
  EXPECT_EQ(Text(), std::string(kJobLine) +
                        "8 processes on 2 nodes in 1 communicator. Lost to waiting: 7.0 GPUs.\n"
                        "\n"
                        "1 alert fires:\n"
                        "NCCLHangCulprit: global rank 3 (GPU 3) on node-0 in world, for 8 min\n"
                        "\n"
                        "LATE OR BEHIND  STATE          FOR  COMMUNICATOR  GPU  NODE     PID\n"
                        "global rank 3   behind by 1  8 min  world           3  node-0  1003\n"
                        "\n"
                        "COMMUNICATOR  RANKS  NODES  STARTED     FOR  STATE\n"
                        "world             8      2      101  10 min  7 ranks wait in AllGather\n");
  EXPECT_THAT(Text({}, {.has_colours = true}), HasSubstr("\x1b[1;31mNCCLHangCulprit"));
  EXPECT_THAT(Text(), Not(HasSubstr("\x1b")));
}

// Regression: without detail it had no rank that was late or behind, and was not used yet.
TEST_F(JobCommandTest, AlertSeriesAloneNameTheCulprit) {
  Forget("(nccl_collective_started_sequence{");
  Hang();
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("global rank 3   behind by 1  8 min  world "));
  EXPECT_THAT(text,
              HasSubstr("world             8      2      101    -  7 ranks wait in AllGather\n"));
}

// Regression: a node whose clock is ahead hid a hang.
TEST_F(JobCommandTest, AClockThatIsAheadChangesNoAge) {
  Hang();
  Forget("(nccl_stalled_oldest_in_flight_start_timestamp_seconds{");
  for (const int rank : {0, 4})
    Add("(nccl_stalled_oldest_in_flight_start_timestamp_seconds{",
        {{"comm", kWorld}, {"rank", std::to_string(rank)}, {"function", "AllGather"}},
        kNow - 600 + (rank == 4 ? 900 : 0));
  EXPECT_THAT(Text(), HasSubstr("101    -  7 ranks wait in AllGather\n")) << "no clock is known";
  AddClocks(900);
  EXPECT_THAT(Text(), HasSubstr("101  10 min  7 ranks wait in AllGather\n"));
  Forget("(nccl_stalled_oldest_in_flight_start_timestamp_seconds{");
  Add("(nccl_operations_last_progress_timestamp_seconds{",
      {{"comm", kWorld}, {"instance", "node-1:9828"}}, kNow + 300);
  EXPECT_THAT(Text(), HasSubstr("101  10 min  7 ranks wait\n"));
}

TEST_F(JobCommandTest, PodsOfANodeWithEqualPidsAreSeveralProcesses) {
  Forget("(nccl_rank_info{c");
  for (int rank = 0; rank < 4; ++rank) {
    Labels pod{{"instance", "node-0:9828"},
               {"pod", rank < 2 ? "llm-" + std::to_string(rank) : "llm-sidecars"},
               {"container", rank == 2 ? "a" : "b"},
               {"pid", "1"}};
    if (rank == 2) Add("(nccl_process_halted{", pod);
    pod.merge(Labels{{"comm", kWorld}, {"rank", std::to_string(rank)}, {"gpu", "0"}});
    Add("(nccl_rank_info{c", pod);
  }
  const auto json = nlohmann::json::parse(Text({.is_json = true}));
  EXPECT_EQ(json["processes"], 4);
  ASSERT_EQ(json["named"].size(), 1u);
  EXPECT_EQ(json["named"][0]["rank"], "2");
  for (const std::string& query : queries()) {
    if (query.find("pid") != std::string::npos) {
      EXPECT_THAT(query, HasSubstr("instance, pod, container, pid, global_rank"));
    }
  }
}

TEST_F(JobCommandTest, EachLineFitsItsColumns) {
  Hang();
  IsLate(kWorld, 5, 0.1);
  warnings = {"store-1 did not answer in time: context deadline exceeded"};
  for (const size_t columns : {40, 60, 80}) {
    std::istringstream text(Text({}, {.columns = columns}));
    for (std::string line; std::getline(text, line);) EXPECT_LE(Width(line), columns) << line;
  }
}

TEST_F(JobCommandTest, JsonHasEveryRank) {
  Hang();
  AddClocks();
  const auto json = nlohmann::json::parse(Text({.is_json = true}));
  EXPECT_EQ(json["warnings"].size(), 0u);
  EXPECT_EQ(json["job"]["nccl_job"], "4711");
  EXPECT_EQ(json["job"]["slurm_job_names"], nlohmann::json({"llm-7b"}));
  EXPECT_EQ(json["taken"], kNow);
  EXPECT_EQ(json["judged"], true);
  EXPECT_TRUE(json["waiting_gpus"].is_null());
  EXPECT_EQ(json["alerts"][0]["global_rank"], "3");
  ASSERT_EQ(json["named"].size(), 1u);
  EXPECT_EQ(json["named"][0]["behind"], 1);
  EXPECT_EQ(json["named"][0]["communicators"], nlohmann::json({kWorld}));
  EXPECT_EQ(json["communicators"][0]["state"], "waits");
  const auto& ranks = json["communicators"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 8u);
  EXPECT_EQ(ranks[3]["waits"], false);
  EXPECT_EQ(ranks[4]["waits"], true);
  EXPECT_EQ(ranks[4]["process"], "alive");
  EXPECT_EQ(ranks[4]["in_flight"], "AllGather");
  EXPECT_EQ(ranks[4]["in_flight_since"], kNow - 600);
}

TEST_F(JobCommandTest, APartOfAnAnswerIsNotTakenForTheWhole) {
  warnings = {"store-1: timeout", "store-1: timeout"};
  EXPECT_TRUE(Text().starts_with("answer is incomplete: store-1: timeout\nJob 4711 "));
  EXPECT_EQ(nlohmann::json::parse(Text({.is_json = true}))["warnings"],
            nlohmann::json({"store-1: timeout"}));
  EXPECT_EQ(Text({.wanted = {.labels = {"99"}}}), "");
  EXPECT_THAT(failure(), testing::EndsWith("; the answer is incomplete: store-1: timeout"));
  AddJob({{"nccl_job", "4712"}, {"uid", "1000"}}, 16);
  EXPECT_TRUE(Text().starts_with("answer is incomplete: store-1: timeout\nJOB "));
  EXPECT_EQ(nlohmann::json::parse(Text({.is_json = true}))["warnings"].size(), 1u);
}

TEST_F(JobCommandTest, WithoutRulesNothingIsSaidToBeWell) {
  Forget("comm:nccl_progress:changes{");
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\nNo rank is named.\nHangs and late ranks are not known: the rules "
                              "have no series of this"));
  EXPECT_THAT(text, HasSubstr("101    -  not known\n"));
  EXPECT_EQ(nlohmann::json::parse(Text({.is_json = true}))["judged"], false);
  Forget("count(comm:nccl_progress:changes)");
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(failure(),
            "the recording rules of nccl-exporter are not loaded (there is no "
            "comm:nccl_progress:changes), so hangs and late ranks are not known: see "
            "deploy/prometheus");
}

// Prometheus has the last values of rules for five minutes.
TEST_F(JobCommandTest, RulesThatAreNoLongerEvaluatedSaySo) {
  SetRulesAge(20);
  EXPECT_THAT(Text(), Not(HasSubstr("last evaluated")));
  SetRulesAge(240);
  EXPECT_THAT(Text(), HasSubstr("The rules were last evaluated 4 min ago: hangs and late ranks"));
}

// The server did not find in the second query what it had found in the first.
TEST_F(JobCommandTest, AJobWithoutRanksHasNotEnded) {
  Forget("(nccl_rank_info{c");
  EXPECT_THAT(Text(), HasSubstr("\nNo rank is reported.\nHangs and late ranks are not known: "));
}

TEST_F(JobCommandTest, WithoutTimesLateRanksAreNotKnown) {
  Forget("process:nccl_busy_seconds:rate{");
  EXPECT_THAT(Text(), HasSubstr("Late ranks are not known: no time in kernels was measured"));
}

// Regression: it said that nothing was lost to waiting.
TEST_F(JobCommandTest, AJobWithoutGpuTimesIsNotJudgedAndSaysHowItWouldBe) {
  Forget("process:nccl_busy_seconds:rate{");
  Add("job:nccl_ranks_untimed:count", {}, 8);
  Add("(nccl_rank_info{timing_source=~\"none|proxy\"", {{"timing_reason", "cpus_low"}});
  Add("(nccl_rank_info{timing_source=~\"none|proxy\"", {{"timing_reason", "allgatherv_enabled"}});
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("8 processes on 2 nodes in 1 communicator. Lost to waiting: not "
                              "known.\n"));
  EXPECT_THAT(text, HasSubstr("Late ranks cannot be seen: no GPU times (allgatherv_enabled, "
                              "cpus_low). Give\neach rank at least two CPUs. Set "
                              "NCCL_ALLGATHERV_ENABLE=0 in the job.\n"));
  EXPECT_THAT(text, Not(HasSubstr("0.0 GPUs")));
  const auto json = nlohmann::json::parse(Text({.is_json = true}));
  EXPECT_TRUE(json["waiting_gpus"].is_null());
  EXPECT_EQ(json["untimed_reasons"].size(), 2u);
}

TEST_F(JobCommandTest, RanksThatAreNotReportedAreNotKnown) {
  Forget("max by (comm) (nccl_communicator_ranks{");
  Add("max by (comm) (nccl_communicator_ranks{", {{"comm", kWorld}}, 12);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("1 communicator has ranks that are not reported: nothing is known of "
                              "those.\n"));
  EXPECT_THAT(text, HasSubstr("world          8/12 "));
}

TEST_F(JobCommandTest, AlertsOfTheTargetsOfTheJobAreItsOwn) {
  const auto fire = [&](const std::string& instance, const std::string& uid) {
    Add("ALERTS{alertstate=\"firing\",alertname=~\"NCCLExporter(",
        {{"alertname", "NCCLExporterSeriesDropped"}, {"instance", instance}, {"uid", uid}});
  };
  fire("node-9:9828", "");
  fire("node-1:9828", "1001");
  EXPECT_THAT(Text(), HasSubstr("No alert fires.\n"));
  fire("node-1:9828", "");
  EXPECT_THAT(Text(), HasSubstr("1 alert fires:\nNCCLExporterSeriesDropped: node-1:9828\n"));
}

TEST_F(JobCommandTest, TextsOfOtherProcessesAreSafeOnATerminal) {
  AddCommunicator("1111111111111111", "a\x1b[2J", {0, 1}, 0);
  Fire("NCCLHangCulprit", "critical", {{"rank", "\x1b[31m"}, {"hostname", "b\nc"}});
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("NCCLHangCulprit: rank ?[31m on b?c"));
  EXPECT_THAT(text, HasSubstr("a?[2J"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace nccl_exporter::exporter
