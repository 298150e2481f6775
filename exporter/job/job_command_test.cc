// SPDX-License-Identifier: Apache-2.0
#include "exporter/job/job_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "exporter/commands/text_table.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNow = 1700000100;  // 2023-11-14T22:15:00Z
using Labels = std::map<std::string, std::string>;

// Answers each query by what was recorded for its text; others have no series.
class Recorded {
 public:
  void Add(const std::string& query, Labels labels, double value = 1) {
    answers_[query].push_back({.labels = std::move(labels), .time = kNow, .value = value});
  }
  void Forget(const std::string& query) { answers_.erase(query); }
  std::string fault;
  const std::vector<std::string>& queries() const { return queries_; }

  AskPrometheus Ask() const {
    return [this](const std::string& query) {
      queries_.push_back(query);
      QueryAnswer answer{.samples = {}, .fault = fault};
      for (const auto& [part, samples] : answers_) {
        if (query.find(part) != std::string::npos) answer.samples = samples;
      }
      return answer;
    };
  }

 private:
  std::map<std::string, std::vector<Sample>> answers_;
  mutable std::vector<std::string> queries_;
};

constexpr const char* kJobs = "(nccl_rank_info{}))";
constexpr const char* kRanks = "(nccl_rank_info{c";
constexpr const char* kRules = "count(comm_rank:nccl_rank:info)";
constexpr const char* kStarted = "max by (comm, rank) (nccl_collective_started_sequence{";
constexpr const char* kStalled = "max by (comm, rank) (nccl_stalled_started_sequence{";
constexpr const char* kProgress =
    "max by (comm, rank) (nccl_operations_last_progress_timestamp_seconds{";
constexpr const char* kInFlight = "(nccl_operations_oldest_in_flight_start_timestamp_seconds{";
constexpr const char* kDead = "(nccl_process_alive{";
constexpr const char* kStopped = "(nccl_process_stopped{";
constexpr const char* kLate = "(comm_rank:nccl_straggler:deficit{";

// Job 4711 of 8 ranks on two nodes, in one communicator that moves.
class JobCommandTest : public testing::Test {
 protected:
  JobCommandTest() {
    AddJob("4711", 8);
    prometheus_.Add(kRules, {}, 8);
    for (int rank = 0; rank < 8; ++rank) {
      prometheus_.Add(kRanks, {{"comm", "0123456789abcdef"},
                               {"comm_name", "world"},
                               {"rank", std::to_string(rank)},
                               {"global_rank", std::to_string(rank)},
                               {"gpu", std::to_string(rank % 4)},
                               {"hostname", Node(rank)},
                               {"instance", Node(rank) + ":9828"},
                               {"pid", std::to_string(1000 + rank)}});
    }
    SetProgress(kNow - 5);
  }

  static std::string Node(int rank) { return "node-" + std::to_string(rank / 4); }
  void AddJob(const std::string& id, double processes, const std::string& name_space = "research") {
    prometheus_.Add(kJobs,
                    {{"slurm_job_id", id},
                     {"slurm_job_name", "llm-7b"},
                     {"uid", "1000"},
                     {"namespace", name_space}},
                    processes);
  }
  void SetProgress(double time, int behind = -1) {
    for (const char* const query : {kStarted, kStalled, kProgress, kInFlight})
      prometheus_.Forget(query);
    for (int rank = 0; rank < 8; ++rank) {
      const Labels labels{{"comm", "0123456789abcdef"}, {"rank", std::to_string(rank)}};
      prometheus_.Add(kStarted, labels, rank == behind ? 100 : 101);
      if (kNow - time > 5) prometheus_.Add(kStalled, labels, rank == behind ? 100 : 101);
      prometheus_.Add(kProgress, labels, time);
      if (behind == -1 || rank == behind) continue;
      Labels in_flight = labels;
      in_flight["function"] = "AllGather";
      prometheus_.Add(kInFlight, in_flight, time);
    }
  }
  std::string Text(const JobRequest& request = {}, const JobView& view = {}) {
    fault_.clear();
    return AnswerAbout(request, prometheus_.Ask(), view, fault_);
  }

  Recorded prometheus_;
  std::string fault_;
};

TEST_F(JobCommandTest, AJobThatRunsIsThreeShortParts) {
  EXPECT_EQ(Text(),
            "Job 4711 (llm-7b) of user 1000 in namespace research, 2023-11-14T22:15Z\n"
            "8 processes on 2 nodes in 1 communicator.\n"
            "\n"
            "No alert fires.\n"
            "\n"
            "No rank is late or behind, and no process has ended or is stopped.\n"
            "\n"
            "COMMUNICATOR  RANKS  NODES  STARTED  MOVED  STATE\n"
            "world             8      2      101  5.0 s  moves\n");
}

// The detail is scraped once a minute, so its time of progress may be old.
TEST_F(JobCommandTest, AJobWithOldDetailMovesWhereItsRanksAreNotStalled) {
  SetProgress(kNow - 70, 3);
  EXPECT_THAT(Text(), testing::Not(testing::HasSubstr("moves")));
  prometheus_.Forget(kStalled);
  EXPECT_THAT(Text(), testing::HasSubstr("moves"));
}

TEST_F(JobCommandTest, AHangNamesTheRankThatIsBehindAndSinceWhen) {
  SetProgress(kNow - 600, 3);
  const Labels alert{{"alertname", "NCCLHangCulprit"},
                     {"severity", "critical"},
                     {"comm", "0123456789abcdef"},
                     {"comm_name", "world"},
                     {"rank", "3"},
                     {"global_rank", "3"},
                     {"gpu", "3"},
                     {"hostname", "node-0"}};
  Labels firing = alert, for_state = alert;
  firing["alertstate"] = "firing";
  firing["__name__"] = "ALERTS";
  for_state["__name__"] = "ALERTS_FOR_STATE";
  prometheus_.Add("ALERTS{alertstate=\"firing\"", firing);
  prometheus_.Add("ALERTS_FOR_STATE{", for_state, kNow - 480);
  EXPECT_EQ(Text(),
            "Job 4711 (llm-7b) of user 1000 in namespace research, 2023-11-14T22:15Z\n"
            "8 processes on 2 nodes in 1 communicator.\n"
            "\n"
            "1 alert fires:\n"
            "NCCLHangCulprit: global rank 3 (GPU 3) on node-0 in world, for 8 min\n"
            "\n"
            "LATE OR BEHIND  STATE          FOR  COMMUNICATOR  GPU  NODE     PID\n"
            "global rank 3   behind by 1  8 min  world           3  node-0  1003\n"
            "\n"
            "COMMUNICATOR  RANKS  NODES  STARTED   MOVED  STATE\n"
            "world             8      2      101  10 min  7 ranks wait in AllGather\n");
  const std::string coloured = Text({}, {.has_colours = true});
  EXPECT_THAT(coloured, HasSubstr("\x1b[1;31mNCCLHangCulprit"));
  EXPECT_THAT(Text(), Not(HasSubstr("\x1b")));
}

// Counts of ranks that are scraped at different times differ while a job runs.
TEST_F(JobCommandTest, ARankThatIsScrapedEarlierIsNotBehind) {
  SetProgress(kNow - 5, 3);
  EXPECT_THAT(Text(), HasSubstr("No rank is late or behind"));
}

TEST_F(JobCommandTest, ALateAndAKilledRankAreNamed) {
  prometheus_.Add(kLate, {{"comm", "0123456789abcdef"}, {"rank", "5"}}, 0.1064);
  prometheus_.Add(kDead, {{"instance", "node-0:9828"}, {"pid", "1002"}, {"global_rank", "2"}});
  prometheus_.Add("job:nccl_waiting_gpu_seconds:rate", {}, 0.745);
  const std::string text = Text();
  EXPECT_THAT(text,
              HasSubstr("8 processes on 2 nodes in 1 communicator. Lost to waiting: 0.7 GPUs."));
  EXPECT_THAT(text,
              HasSubstr("global rank 2   ended        5.0 s  world           2  node-0  1002"));
  EXPECT_THAT(text,
              HasSubstr("global rank 5   late 10.6 %      -  world           1  node-1  1005"));
}

// Pods with a GPU each: their processes have the same pid, and GPU number.
TEST_F(JobCommandTest, PodsOfANodeWithEqualPidsAreSeveralProcesses) {
  std::vector<Labels> processes;
  prometheus_.Forget(kRanks);
  for (int rank = 0; rank < 8; ++rank) {
    Labels labels{{"instance", "node-0:9828"},
                  {"pod", rank < 6 ? "llm-" + std::to_string(rank) : "llm-sidecars"},
                  {"container", rank == 6 ? "a" : "b"},
                  {"pid", "1"}};
    processes.push_back(labels);
    labels.merge(Labels{{"comm", "0123456789abcdef"},
                        {"comm_name", "world"},
                        {"rank", std::to_string(rank)},
                        {"gpu", "0"},
                        {"hostname", "node-0"}});
    prometheus_.Add(kRanks, labels);
    labels["comm"] = "1111111111111111";
    labels["comm_name"] = "pair";
    if (rank < 2) prometheus_.Add(kRanks, labels);
  }
  SetProgress(kNow - 600, 3);
  prometheus_.Add(kDead, processes[6]);
  prometheus_.Add(kStopped, processes[7]);
  const auto json = nlohmann::json::parse(Text({.is_json = true}));
  EXPECT_THAT(Text(), HasSubstr("8 processes on 1 node in 2 communicators"));
  EXPECT_EQ(json["communicators"][0]["comm_name"], "world");
  const auto& ranks = json["communicators"][0]["ranks"];
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(ranks[rank]["ended"], rank == 6) << rank;
    EXPECT_EQ(ranks[rank]["stopped"], rank == 7) << rank;
    EXPECT_EQ(ranks[rank]["waits"], rank != 3 && rank < 6) << rank;
    EXPECT_EQ(ranks[rank]["waits_elsewhere"], false) << rank;
  }
  for (const auto& rank : json["communicators"][1]["ranks"])
    EXPECT_EQ(rank["waits_elsewhere"], true);
  EXPECT_THAT(prometheus_.queries(),
              testing::Contains(HasSubstr("group by (cluster, namespace, slurm_job_id, "
                                          "slurm_job_name, uid, instance, pod, container, "
                                          "pid, global_rank) (nccl_rank_info{")));
  for (const std::string& query : prometheus_.queries()) {
    if (query.find("pid") != std::string::npos) {
      EXPECT_THAT(query, HasSubstr("instance, pod, container, pid, global_rank"));
    }
  }
}

TEST_F(JobCommandTest, EachLineFitsItsColumns) {
  SetProgress(kNow - 600, 3);
  for (const size_t columns : {40, 60, 80}) {
    std::istringstream text(Text({}, {.columns = columns}));
    for (std::string line; std::getline(text, line);) EXPECT_LE(Width(line), columns) << line;
  }
}

TEST_F(JobCommandTest, JsonHasEveryRank) {
  SetProgress(kNow - 600, 3);
  const auto json = nlohmann::json::parse(Text({.is_json = true}));
  EXPECT_EQ(json["job"]["slurm_job_id"], "4711");
  EXPECT_EQ(json["taken"], kNow);
  EXPECT_TRUE(json["waiting_gpus"].is_null());
  const auto& ranks = json["communicators"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 8u);
  EXPECT_EQ(ranks[3]["behind"], 1);
  EXPECT_EQ(ranks[4]["waits"], true);
  EXPECT_EQ(ranks[4]["in_flight"], "AllGather");
  EXPECT_EQ(ranks[4]["in_flight_since"], kNow - 600);
}

TEST_F(JobCommandTest, SeveralJobsAreListedUntilOneIsChosen) {
  AddJob("4712", 16, "other");
  EXPECT_EQ(Text(),
            "JOB   NAME    NAMESPACE  CLUSTER  USER  PROCESSES\n"
            "4712  llm-7b  other               1000         16\n"
            "4711  llm-7b  research            1000          8\n"
            "Choose one with --job: its id, name, namespace or cluster, or the beginning of\n"
            "its pods' names. Several --job must all be true.\n");
  EXPECT_THAT(Text({.wanted = {"llm-7b"}}), HasSubstr("Choose one"));
  EXPECT_THAT(Text({.wanted = {"4711"}}), HasSubstr("Job 4711 (llm-7b) of user 1000"));
  EXPECT_THAT(Text({.wanted = {"research", "llm-7b"}}), HasSubstr("Job 4711 (llm-7b)"));
  EXPECT_EQ(nlohmann::json::parse(Text({.is_json = true}))["jobs"].size(), 2u);
}

TEST_F(JobCommandTest, PodsAreChosenByTheBeginningOfTheirNames) {
  prometheus_.Add("(nccl_rank_info{pod=~\"llm\\\\.a(-.*)?\"}))",
                  {{"namespace", "research"}, {"uid", "1000"}}, 8);
  EXPECT_THAT(Text({.wanted = {"research", "llm.a"}}),
              HasSubstr("Pods llm.a of user 1000 in namespace research, 2023"));
  EXPECT_EQ(fault_, "");
}

TEST_F(JobCommandTest, WhatIsMissingIsOneLine) {
  AddJob("4712", 16, "");
  EXPECT_EQ(Text({.wanted = {"99"}}), "");
  EXPECT_EQ(fault_,
            "no job is '99'; there are job 4712 (llm-7b) of user 1000; job 4711 (llm-7b) of user "
            "1000 in namespace research");
  prometheus_.Forget(kRules);
  EXPECT_EQ(Text({.wanted = {"4711"}}), "");
  EXPECT_THAT(fault_, HasSubstr("the recording rules of nccl-exporter are not loaded"));
  prometheus_.Forget(kJobs);
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(fault_, "there is no nccl_rank_info: no daemon is scraped, or no job runs");
  prometheus_.fault = "cannot reach http://a:80: Connection refused";
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(fault_, prometheus_.fault);
}

TEST_F(JobCommandTest, TextsOfOtherProcessesAreSafeOnATerminal) {
  prometheus_.Forget(kJobs);
  AddJob("4711\x1b[2J", 8, "a\nb");
  EXPECT_THAT(Text(), HasSubstr("Job 4711?[2J (llm-7b) of user 1000 in namespace a?b"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
