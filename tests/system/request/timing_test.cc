// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter timing`: what it keeps on, what it cannot, and that all is as before afterwards.
#include "tests/system/request/request_fixture.h"

namespace nccl_exporter {
namespace {

class TimingTest : public RequestTest {
 protected:
  // Windows in a fiftieth of the time.
  static Environment InWindows() {
    return {{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
            {"NCCL_EXPORTER_SAMPLING", "0.02"},
            {"NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS", "2"},
            {"NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS", "0"},
            {"NCCL_EXPORTER_NETWORK_TIMING", "0.02"}};
  }
  std::unique_ptr<exporter::ChildProcess> StartSampledJob(const std::string& calls,
                                                          const Environment& environment) const {
    for (const char* node : {"0", "1"}) std::filesystem::create_directory(segments_.File(node));
    auto job = StartJob(
        segments_.path() + "/%n",
        {"--nodes", "2", "--ranks-per-node", "1", "--calls", calls, "--rate", "50", "--duration",
         "16", "--api-version", "5", "--nccl-version", "22809", "--slurm-job-id", "4711"},
        environment);
    WaitForSegments(directory(), 1);
    return job;
  }
  std::string directory() const { return segments_.File("0"); }
  Options Command(const std::string& length) const {
    return {
        kDaemonPath, "--segment.dir=" + directory(), "timing", "--job", "4711", "--always", "--for",
        length};
  }
  Counts CountsNow() const {
    const auto node = Look(directory());
    return CountsOf(*node, node->processes.at(0).communicators.at(0).id);
  }
  static uint64_t NetworkOperations(const Counts& counts) {
    uint64_t operations = 0;
    for (const auto& direction : counts.network.directions) operations += direction.operations;
    return operations;
  }
};

TEST_F(TimingTest, KeepsWindowsOpenForItsTimeAndLeavesThemAsTheyWere) {
  const auto job = StartSampledJob("allreduce", InWindows());
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const Counts begin = CountsNow();
  const exporter::Finished timing = exporter::RunToEnd(Command("5s"));
  const Counts end = CountsNow();
  EXPECT_EQ(timing.exit_code, 0) << timing.output;
  EXPECT_THAT(timing.output, testing::HasSubstr("kernel timing was kept on"));
  EXPECT_THAT(timing.output, testing::HasSubstr("network timing was kept on"));
  const uint64_t completed = end.completed - begin.completed;
  ASSERT_GT(completed, 50u);
  // The first operations take the request; the command itself takes some time.
  EXPECT_GT(end.timed - begin.timed, completed / 2) << timing.output;
  EXPECT_GT(NetworkOperations(end) - NetworkOperations(begin), completed / 2);
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  const Counts last = CountsNow();
  const uint64_t later = last.completed - end.completed;
  ASSERT_GT(later, 50u);
  EXPECT_LT(last.timed - end.timed, later / 2);
  EXPECT_LT(NetworkOperations(last) - NetworkOperations(end), later / 2);
}

TEST_F(TimingTest, SaysWhatStaysAsItIsAndWhy) {
  Environment environment = InWindows();
  environment["NCCL_EXPORTER_NETWORK_TIMING"] = "off";
  const auto job = StartSampledJob("sendrecv,allreduce", environment);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const exporter::Finished timing = exporter::RunToEnd(Command("1s"));
  EXPECT_EQ(timing.exit_code, 0) << timing.output;
  EXPECT_THAT(timing.output, testing::HasSubstr("the process sends and receives"));
  EXPECT_THAT(timing.output, testing::HasSubstr("network timing stays off"));
  EXPECT_EQ(job->Wait(), 0);
}

TEST_F(TimingTest, FailsWhereNobodyTakesTheRequest) {
  const exporter::Finished timing = exporter::RunToEnd(Command("1s"));
  EXPECT_EQ(timing.exit_code, 1);
  EXPECT_THAT(timing.output, testing::HasSubstr("no running process of this job has a segment"));
}

}  // namespace
}  // namespace nccl_exporter
