// SPDX-License-Identifier: Apache-2.0
// Requesters that are killed, that come second, or that have no business there.
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "tests/system/request/request_fixture.h"

namespace nccl_exporter {
namespace {

class RequesterTest : public RequestTest {};

// Killed at a random moment, and the next one is served; the job's own counts are exact.
// A thousand of them: CONTRIBUTING.md.
TEST_F(RequesterTest, RequestersThatAreKilledDoTheJobNoHarm) {
  const char* wanted = std::getenv("KILLED_REQUESTERS");
  const int requesters = wanted != nullptr ? std::atoi(wanted) : 12;
  const auto job =
      StartJob(segments_.path(), {"--ranks-per-node", "2", "--layout", "dp", "--rate", "50",
                                  "--duration", std::to_string(12 + requesters / 2)});
  WaitForSegments(segments_.path(), 2);
  std::mt19937 random(4711);
  for (int i = 0; i < requesters; ++i) {
    exporter::ChildProcess requester(
        TraceCommand(segments_.path(), i % 2 == 0 ? "channels" : "steps", "killed.json.gz", "60"));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    requester.Signal(SIGKILL);
    requester.Wait();
  }
  const exporter::Finished trace =
      exporter::RunToEnd(TraceCommand(segments_.path(), "channels", "trace.json.gz", "1"));
  EXPECT_EQ(trace.exit_code, 0) << trace.output;
  ASSERT_EQ(job->Wait(), 0) << job->AllOutput();
  const nlohmann::json truth = ReadTruth(Path("truth.json"));
  size_t operations = 0;
  ForEachDetail(Read("trace.json.gz"), truth,
                [&](const TracedCommunicator&, const TracedDetail& detail, const nlohmann::json&) {
                  ExpectNothingLost(detail);
                  operations += detail.operations.size();
                });
  EXPECT_GT(operations, 10u);
  ExpectSegmentsEqualTruth(segments_.path(), truth);
}

TEST_F(RequesterTest, ASecondRequesterIsRefusedWhileOneRuns) {
  const auto job = StartJob(segments_.path(), {"--ranks-per-node", "2", "--layout", "dp", "--rate",
                                               "50", "--duration", "8"});
  WaitForSegments(segments_.path(), 2);
  exporter::ChildProcess first(TraceCommand(segments_.path(), "channels", "first.json.gz", "3"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const exporter::Finished second =
      exporter::RunToEnd(TraceCommand(segments_.path(), "steps", "second.json.gz", "1"));
  EXPECT_THAT(second.output, testing::HasSubstr("another request is running"));
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_THAT(first.AllOutput(), testing::Not(testing::HasSubstr("no channels")));
  EXPECT_FALSE(
      Read("first.json.gz").at(0).processes.at(0).communicators.at(0).detail->channels.empty());
  EXPECT_EQ(job->Wait(), 0);
}

// By the kernel's rule for /proc/PID/fd.
TEST_F(RequesterTest, AStrangerIsRefusedByTheKernel) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can run a program as another user";
  const auto job = StartJob(segments_.path(), {"--ranks-per-node", "1", "--layout", "dp", "--rate",
                                               "50", "--duration", "5"});
  WaitForSegments(segments_.path(), 1);
  std::filesystem::permissions(segments_.path(), std::filesystem::perms::all);
  Options command{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  const Options trace{std::filesystem::canonical(kDaemonPath),
                      "--segment.dir=" + segments_.path(),
                      "trace",
                      "--level",
                      "channels",
                      "--seconds",
                      "1"};
  command.insert(command.end(), trace.begin(), trace.end());
  exporter::ChildProcess stranger(command);
  EXPECT_EQ(stranger.Wait(), 0) << stranger.AllOutput();
  EXPECT_THAT(stranger.ErrorOutput(),
              testing::HasSubstr("no channels and no steps: its files cannot be listed"));
  EXPECT_EQ(job->Wait(), 0);
}

}  // namespace
}  // namespace nccl_exporter
