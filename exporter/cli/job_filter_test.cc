// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

using Wanted = std::map<std::string, std::string>;

// Processes of user 1000 in jobs 4712 and 4713, of user 1001 in job 4712, and one without a job.
class JobFilterTest : public testing::Test {
 protected:
  JobFilterTest() {
    Add(1, 1000, "4712");
    Add(2, 1000, "4713");
    Add(3, 1001, "4712");
    Add(4, 1000, "");
    node_->processes[1].is_alive = false;
  }
  void Add(uint64_t pid, uint64_t uid, const std::string& job) {
    collector::ProcessSnapshot process = EmptyProcess(pid);
    process.uid = uid;
    process.identity = {};
    if (!job.empty()) process.identity = {{"SLURM_JOB_ID", job}};
    node_->processes.push_back(process);
  }
  std::vector<uint64_t> Pids(const Wanted& wanted) {
    std::vector<uint64_t> pids;
    const auto kept = JobFilter{wanted}.Only(node_);
    for (const auto& process : kept->processes) pids.push_back(process.pid);
    return pids;
  }

  std::shared_ptr<collector::NodeSnapshot> node_ = std::make_shared<collector::NodeSnapshot>();
};

TEST_F(JobFilterTest, KeepsProcessesThatHaveAllOfTheLabels) {
  EXPECT_THAT(Pids({}), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Pids({{"nccl_job", "4712"}}), testing::ElementsAre(1, 3));
  EXPECT_THAT(Pids({{"uid", "1000"}}), testing::ElementsAre(1, 2, 4));
  EXPECT_THAT(Pids({{"nccl_job", "4712"}, {"uid", "1001"}}), testing::ElementsAre(3));
  EXPECT_THAT(Pids({{"nccl_job", ""}}), testing::ElementsAre(4));
  EXPECT_THAT(Pids({{"nccl_job", "47"}}), testing::IsEmpty());
  const JobFilter of_user{{{"uid", "1000"}}};
  EXPECT_EQ(of_user.Only(node_)->segments.live, 2u);
  EXPECT_EQ(node_->processes.size(), 4u) << "the snapshot is not changed";
}

TEST_F(JobFilterTest, CountsTheFindingsThatItRemoves) {
  Judgement judgement;
  judgement.findings.resize(3);
  judgement.findings[0].communicator = collector::CommunicatorKey{};
  judgement.findings[0].communicator->uid = 1000;
  judgement.findings[0].communicator->job = "4712";
  judgement.findings[1].uid = 1000;
  judgement.findings[1].job_name = "4713";
  judgement.findings[2].uid = 1001;
  Judgement all = judgement;
  EXPECT_EQ(JobFilter{}.Remove(all), 0u);
  const JobFilter of_job{{{"nccl_job", "4712"}}};
  EXPECT_EQ(of_job.Remove(judgement), 2u);
  ASSERT_EQ(judgement.findings.size(), 1u);
  EXPECT_EQ(judgement.findings[0].communicator->job, "4712");
}

}  // namespace
}  // namespace nccl_exporter::exporter
