// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/job_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/cli/job/recorded_job.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class JobListTest : public testing::Test, public RecordedJob {
 protected:
  void AddSlurmJob(const std::string& id, const std::string& uid,
                   const std::string& name_space = "", const std::string& name = "") {
    Labels labels{{"uid", uid}};
    if (!id.empty()) labels["nccl_job"] = id;
    if (!name_space.empty()) labels["namespace"] = name_space;
    if (!name.empty()) labels["slurm_job_name"] = name;
    AddJob(labels, 8);
  }
  std::vector<std::string> Chosen(const WantedJob& wanted) {
    const JobChoice choice = ChooseJob(Ask(), wanted);
    fault_ = choice.fault;
    std::vector<std::string> texts;
    for (const Job& job : choice.jobs) texts.push_back(job.Text());
    return texts;
  }

  std::string fault_;
};

TEST_F(JobListTest, SeveralJobsAreListedUntilOneIsChosen) {
  AddSlurmJob("4711", "1000", "research", "llm-7b");
  AddSlurmJob("4712", "1000", "other", "llm-7b");
  EXPECT_EQ(Text(),
            "JOB   NAME    NAMESPACE  CLUSTER  USER  PROCESSES\n"
            "4712  llm-7b  other               1000          8\n"
            "4711  llm-7b  research            1000          8\n"
            "Choose one with --job: its id, name, namespace or cluster, or the beginning of\n"
            "its pods' names; and with --uid: its user. All that is given must be true. With\n"
            "--job '' the job has no id, namespace or cluster but those given.\n");
  EXPECT_EQ(Chosen({.labels = {"llm-7b"}}).size(), 2u);
  const auto is_first =
      testing::ElementsAre("job 4711 (llm-7b) of user 1000 in namespace research");
  EXPECT_THAT(Chosen({.labels = {"4711"}}), is_first);
  EXPECT_THAT(Chosen({.labels = {"research", "llm-7b"}}), is_first);
}

// Regression: neither of them could be shown.
TEST_F(JobListTest, TwoUsersWithTheSameJobIdAreChosenByUser) {
  AddSlurmJob("4711", "1000");
  AddSlurmJob("4711", "1001");
  EXPECT_EQ(Chosen({.labels = {"4711"}}).size(), 2u);
  EXPECT_THAT(Chosen({.labels = {"4711"}, .uid = "1001"}),
              testing::ElementsAre("job 4711 of user 1001"));
  EXPECT_THAT(Chosen({.uid = "1000"}), testing::ElementsAre("job 4711 of user 1000"));
  EXPECT_THAT(Chosen({.labels = {"4711"}, .uid = "100"}), IsEmpty());
  EXPECT_EQ(fault_,
            "no job is '4711' of user 100; there are job 4711 of user 1000; job 4711 of user 1001");
  EXPECT_THAT(Chosen({.uid = "100"}), IsEmpty());
  EXPECT_THAT(fault_, HasSubstr("no job is of user 100; there are "));
}

// Regression: a job without labels could not be shown beside another.
TEST_F(JobListTest, AnEmptyLabelChoosesAJobThatHasNoOthers) {
  AddSlurmJob("", "1000");
  AddSlurmJob("4711", "1000");
  AddSlurmJob("4711", "1000", "research", "llm-7b");
  EXPECT_THAT(Chosen({.labels = {""}}), testing::ElementsAre("the job of user 1000"));
  EXPECT_THAT(Chosen({.labels = {"4711", ""}}), testing::ElementsAre("job 4711 of user 1000"));
  EXPECT_THAT(Chosen({.labels = {"", "llm-7b", "research"}}),
              testing::ElementsAre("job 4711 (llm-7b) of user 1000 in namespace research"));
  EXPECT_THAT(Chosen({.labels = {"", "research"}}), IsEmpty());
}

// Regression: one name was kept, and which one changed from call to call.
TEST_F(JobListTest, AJobHasAllNamesOfItsSteps) {
  AddSlurmJob("4711", "1000", "", "train");
  AddSlurmJob("4712", "1000", "", "other");
  AddSlurmJob("4711", "1000", "", "eval");
  const auto is_it = testing::ElementsAre("job 4711 (eval, train) of user 1000");
  for (const char* const name : {"train", "eval", "4711"})
    EXPECT_THAT(Chosen({.labels = {name}}), is_it) << name;
  EXPECT_THAT(Chosen({.labels = {"train", "eval"}}), is_it);
  for (const char* const name : {"a", "b"}) AddSlurmJob("4711", "1000", "", name);
  EXPECT_THAT(Chosen({.labels = {"eval"}}),
              testing::ElementsAre("job 4711 (a, b, eval and 1 more) of user 1000"));
  EXPECT_EQ(ChooseJob(Ask(), {.labels = {"eval"}}).jobs[0].processes, 32u);
}

TEST_F(JobListTest, PodsAreChosenByTheBeginningOfTheirNames) {
  AddSlurmJob("", "1000", "research");
  Add("(nccl_rank_info{pod=~\"llm\\\\.a(-.*)?\"}))", {{"namespace", "research"}, {"uid", "1000"}},
      8);
  EXPECT_THAT(Chosen({.labels = {"research", "llm.a"}}),
              testing::ElementsAre("pods llm.a of user 1000 in namespace research"));
  EXPECT_THAT(Chosen({.labels = {"research", "llm.a", ""}}), testing::SizeIs(1));
  EXPECT_THAT(Chosen({.labels = {"llm.a", ""}}), IsEmpty()) << "it has a namespace";
  EXPECT_THAT(Chosen({.labels = {"llm.a"}, .uid = "1001"}), IsEmpty());
}

TEST_F(JobListTest, WhatIsMissingIsOneLine) {
  AddSlurmJob("4711", "1000", "research", "llm-7b");
  AddSlurmJob("4712", "1000", "", "llm-7b");
  EXPECT_THAT(Chosen({.labels = {"99"}}), IsEmpty());
  EXPECT_EQ(fault_,
            "no job is '99'; there are job 4712 (llm-7b) of user 1000; job 4711 (llm-7b) of user "
            "1000 in namespace research");
  Forget("(nccl_rank_info{}))");
  EXPECT_THAT(Chosen({}), IsEmpty());
  EXPECT_EQ(fault_, "there is no nccl_rank_info: no daemon is scraped, or no job runs");
  fault = "cannot reach http://a:80: Connection refused";
  EXPECT_THAT(Chosen({}), IsEmpty());
  EXPECT_EQ(fault_, fault);
}

TEST_F(JobListTest, TextsOfOtherProcessesAreSafeOnATerminal) {
  AddSlurmJob("4711\x1b[2J", "1000", "a\nb", "\x1b]0;x\x07");
  EXPECT_THAT(Chosen({}),
              testing::ElementsAre("job 4711?[2J (?]0;x?) of user 1000 in namespace a?b"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
