// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/job_options.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

std::optional<int> Parse(std::vector<const char*> arguments, JobOptions& options) {
  arguments.insert(arguments.begin(), "nccl-sim");
  return ParseJobOptions(static_cast<int>(arguments.size()), arguments.data(), options);
}

// The one line that is printed about what is wrong.
std::string ErrorOf(const std::vector<const char*>& arguments) {
  JobOptions options;
  testing::internal::CaptureStderr();
  const std::optional<int> exit_code = Parse(arguments, options);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(exit_code, 2);
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1);
  return printed;
}

TEST(JobOptions, HaveDefaults) {
  JobOptions options;
  EXPECT_EQ(Parse({}, options), std::nullopt);
  EXPECT_EQ(options.play.release.nccl_version(), 23007);
  EXPECT_EQ(options.workload.shape.ranks(), 8);
  EXPECT_TRUE(options.finalizes);
  EXPECT_TRUE(options.play.names_communicators);
  EXPECT_FALSE(options.kill);
}

TEST(JobOptions, TakeAnEnvironmentForSomeRanks) {
  JobOptions options;
  EXPECT_EQ(Parse({"--env-of", "3:A=1", "--env-of", "2-5:B=%r"}, options), std::nullopt);
  ASSERT_EQ(options.environment_of_ranks.size(), 2u);
  EXPECT_EQ(options.environment_of_ranks[0].last, 3);
  EXPECT_EQ(options.environment_of_ranks[1].first, 2);
  EXPECT_EQ(options.environment_of_ranks[1].last, 5);
  EXPECT_EQ(options.environment_of_ranks[1].pair, "B=%r");
  EXPECT_NE(ErrorOf({"--env-of", "A=1"}).find("RANKS:NAME=VALUE"), std::string::npos);
  EXPECT_NE(ErrorOf({"--env-of", "1:A"}).find("RANKS:NAME=VALUE"), std::string::npos);
}

TEST(JobOptions, TakeTheNetwork) {
  JobOptions options;
  EXPECT_EQ(Parse({"--network-overlap", "2", "--network-poll", "5000", "--network-repeats", "10000",
                   "--network-chunk", "65536", "--pxn"},
                  options),
            std::nullopt);
  EXPECT_EQ(options.play.network_options.overlap, 2);
  EXPECT_EQ(options.play.network_options.poll_ns, 5000);
  EXPECT_EQ(options.play.network_options.most_repeats, 10000);
  EXPECT_EQ(options.play.network_options.chunk_bytes, 65536u);
  EXPECT_TRUE(options.play.network_options.uses_pxn);
  EXPECT_NE(ErrorOf({"--network-overlap", "3"}).find("--network-overlap"), std::string::npos);
  EXPECT_NE(ErrorOf({"--network-poll", "0"}).find("--network-poll"), std::string::npos);
}

TEST(JobOptions, RefuseAnIncidentThatDoesNotFitTheJob) {
  EXPECT_NE(ErrorOf({"--incident", "kill:rank=8"}).find("rank 8, but the job has 8 ranks"),
            std::string::npos);
}

TEST(JobOptions, TakeTheTypicalReleaseOfAnApiVersion) {
  JobOptions options;
  EXPECT_EQ(Parse({"--api-version", "3"}, options), std::nullopt);
  EXPECT_EQ(options.play.release.nccl_version(), 22606);
}

TEST(JobOptions, RefuseAReleaseThatSpeaksAnotherApi) {
  EXPECT_NE(ErrorOf({"--nccl-version", "22809"}).find("speaks profiler API v5"), std::string::npos);
  EXPECT_NE(ErrorOf({"--nccl-version", "22200"}).find("not a release with profiler plugins"),
            std::string::npos);
  JobOptions options;
  EXPECT_EQ(Parse({"--nccl-version", "22809", "--api-version", "5"}, options), std::nullopt);
}

TEST(JobOptions, RefuseWhatContradictsTheCluster) {
  EXPECT_NE(ErrorOf({"--ranks-per-process", "3"}).find("does not divide"), std::string::npos);
  EXPECT_NE(ErrorOf({"--nodes", "2", "--node", "2"}).find("--node 2: the job has 2 nodes"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--kill-rank", "8"}).find("--kill-rank 8: the job has 8 ranks"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--layout", "square"}).find("--layout"), std::string::npos);
  EXPECT_NE(ErrorOf({"--env", "NAME"}).find("not NAME=VALUE"), std::string::npos);
  ErrorOf({"--no-such-option"});
}

TEST(JobOptions, TakeSeveralFaults) {
  JobOptions options;
  EXPECT_EQ(Parse({"--fault", "zero", "--fault", "jump:by=5,every=7"}, options), std::nullopt);
  EXPECT_TRUE(options.play.faults.Has(Fault::kZero));
  EXPECT_EQ(options.play.faults.JumpNs(8), 5);
  EXPECT_FALSE(options.play.lists_operations);
}

TEST(JobOptions, RefuseFaultsThatCannotBe) {
  EXPECT_NE(ErrorOf({"--fault", "smoke"}).find("there is no such fault"), std::string::npos);
  EXPECT_NE(ErrorOf({"--fault", "drift-graph"}).find("needs --graph"), std::string::npos);
  EXPECT_NE(ErrorOf({"--api-version", "7", "--fault", "lost-start"}).find("does not have it"),
            std::string::npos);
}

TEST(JobOptions, TurnADurationIntoSteps) {
  JobOptions options;
  EXPECT_EQ(Parse({"--duration", "30", "--rate", "5"}, options), std::nullopt);
  EXPECT_EQ(options.steps, 150);
}

TEST(JobOptions, ExplainThemselves) {
  const std::string help = JobOptionsHelp();
  for (const char* option :
       {"--layout", "--truth", "--kill-rank", "--segment-dir", "--pace", "drift-self-send"}) {
    EXPECT_NE(help.find(option), std::string::npos) << option;
  }
  EXPECT_EQ(help.find("--child"), std::string::npos);
}

}  // namespace
}  // namespace nccl_exporter::sim
