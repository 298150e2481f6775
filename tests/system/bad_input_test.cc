// SPDX-License-Identifier: Apache-2.0
// Faults around the system: the job runs on with one line through NCCL's logger, the daemon says
// one clear line or counts the reason and serves the rest.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

class BadInput : public testing::Test {
 protected:
  std::string TruthPath() const { return results_.path() + "/truth.json"; }
  exporter::Finished RunJob(const std::string& segment_directory,
                            std::vector<std::string> options = {}) const {
    options.insert(options.end(), {"--layout", "dp", "--steps", "5", "--ranks-per-node", "2"});
    return exporter::RunToEnd(SimulatorCommand(segment_directory, TruthPath(), options));
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(segments_.path() + "/" + name, std::ios::binary) << bytes;
  }
  double Errors(const Daemon& daemon, const std::string& reason) const {
    return daemon.Scrape()
        .Value("nccl_exporter_segment_errors_total", {{"reason", reason}})
        .value_or(-1);
  }
  static size_t Lines(const std::string& text, const std::string& part) {
    size_t lines = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++lines;
    return lines;
  }

  collector::ScratchDirectory segments_;
  collector::ScratchDirectory results_;
};

TEST_F(BadInput, TheJobRunsOnWithoutADirectoryAndSaysSoOnceAProcess) {
  const exporter::Finished job = RunJob("/nonexistent/segments");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(
      Lines(job.output,
            "no metrics from this process: cannot open segment directory /nonexistent/segments"),
      2u)
      << job.output;
  EXPECT_EQ(ReadTruth(TruthPath())["ranks"].size(), 2u) << "the job did not run to its end";
}

TEST_F(BadInput, TheJobRunsOnWithADirectoryThatCannotBeWritten) {
  // Root may write anywhere, but not create a file in /proc.
  const exporter::Finished job = RunJob(geteuid() == 0 ? "/proc/self" : "/");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(Lines(job.output, "no metrics from this process: cannot create a segment in"), 2u)
      << job.output;
}

TEST_F(BadInput, TheJobRunsOnWithAValueThatIsNotUnderstood) {
  std::vector<std::string> command =
      SimulatorCommand(segments_.path(), TruthPath(), {"--steps", "2", "--ranks-per-node", "2"});
  const exporter::Finished job =
      exporter::RunToEnd(command, {{"NCCL_EXPORTER_KERNEL_TIMING", "perhaps"}});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(Lines(job.output,
                  "value of NCCL_EXPORTER_KERNEL_TIMING not understood, its default is in force"),
            2u)
      << job.output;
  EXPECT_EQ(segments_.Files(".seg").size(), 2u);
}

TEST_F(BadInput, AVariableOfAFormerVersionIsNamedAndIgnored) {
  const exporter::Finished job = exporter::RunToEnd(
      SimulatorCommand(segments_.path(), TruthPath(),
                       {"--steps", "2", "--ranks-per-node", "2", "--nccl-debug", "info"}),
      {{"NCCL_EXPORTER_NETWORK_CLOCK", "monotonic"}});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(Lines(job.output, "NCCL_EXPORTER_NETWORK_CLOCK is of a former version, and ignored"),
            2u)
      << job.output;
}

TEST_F(BadInput, TheDaemonEndsWithCodeTwoAndOneLineForBadUsage) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--no-such-flag"},
                                             {"--log.level=loud"},
                                             {"--web.listen-address=nowhere"},
                                             {"--segment.retention=soon"},
                                             {"--web.telemetry-path=metrics"},
                                             {"trace", "merge"}}) {
    std::vector<std::string> command{kDaemonPath};
    command.insert(command.end(), options.begin(), options.end());
    const exporter::Finished daemon = exporter::RunToEnd(command);
    EXPECT_EQ(daemon.exit_code, 2) << options[0] << ": " << daemon.output;
    EXPECT_EQ(Lines(daemon.output, "\n"), 1u) << options[0] << ": " << daemon.output;
  }
}

TEST_F(BadInput, TheDaemonSaysThatItsPortIsInUse) {
  Daemon first(segments_.path());
  const exporter::Finished second =
      exporter::RunToEnd({kDaemonPath, "--segment.dir=" + segments_.path(),
                          "--web.listen-address=127.0.0.1:" + std::to_string(first.port())});
  EXPECT_EQ(second.exit_code, 1) << second.output;
  EXPECT_NE(second.output.find(std::to_string(first.port())), std::string::npos) << second.output;
}

TEST_F(BadInput, TheDaemonWaitsForADirectoryThatIsMissing) {
  const std::string later = results_.path() + "/later";
  Daemon daemon(later);
  EXPECT_EQ(daemon.Scrape().Value("nccl_exporter_segments", {{"state", "live"}}).value_or(-1), 0);
  std::filesystem::create_directory(later);
  EXPECT_EQ(RunJob(later).exit_code, 0);
  EXPECT_TRUE(exporter::Eventually(
      [&] { return !daemon.Scrape().Find("nccl_collective_operations_total").empty(); }));
}

TEST_F(BadInput, TheDaemonCountsForeignAndHalfWrittenFilesAndServesTheRest) {
  Write("notes.txt", "not a segment, by its name");
  Write("empty.seg", "");
  Write("foreign.seg", std::string(100'000, 'x'));
  mkfifo((segments_.path() + "/pipe.seg").c_str(), 0644);
  std::filesystem::create_symlink("/etc/passwd", segments_.path() + "/link.seg");
  ASSERT_EQ(RunJob(segments_.path()).exit_code, 0);
  // A segment of a layout that is not known yet: the major number of a good one, raised.
  const std::vector<std::string> good = segments_.Files(".seg");
  for (const std::string& name : good) {
    if (!name.starts_with("0")) continue;
    std::filesystem::copy_file(segments_.path() + "/" + name, segments_.path() + "/future.seg");
    std::fstream future(segments_.path() + "/future.seg",
                        std::ios::in | std::ios::out | std::ios::binary);
    future.seekp(4);
    future.put(99);
    break;
  }
  Daemon daemon(segments_.path());
  EXPECT_EQ(Errors(daemon, "unknown_major"), 1);
  EXPECT_EQ(Errors(daemon, "bad_magic") + Errors(daemon, "unknown_major"), 2);
  EXPECT_GE(Errors(daemon, "not_a_regular_file") + Errors(daemon, "open_failed"), 2);
  ExpectEqualsTruth(daemon.Scrape(), ReadTruth(TruthPath()));
  const std::string before = daemon.Get("/metrics").body;
  EXPECT_EQ(Errors(daemon, "unknown_major"), 1) << "counted again for the same file";
}

double Operations(const Exposition& page) {
  double sum = 0;
  for (const Sample& sample : page.Find("nccl_collective_operations_total")) sum += sample.value;
  return sum;
}

TEST_F(BadInput, ASegmentTruncatedBetweenTwoScrapesIsCountedAndTheRestIsServed) {
  Daemon daemon(segments_.path());
  exporter::ChildProcess job(SimulatorCommand(segments_.path(), TruthPath(),
                                              {"--layout", "dp", "--pace", "real", "--duration",
                                               "6", "--rate", "50", "--ranks-per-node", "2"}));
  ASSERT_TRUE(exporter::Eventually(
      [&] { return daemon.Scrape().Find("nccl_communicator_info").size() == 2; }));
  // The writer of this one will be killed by its own write to the missing pages, which is the point
  // of never truncating; so cut a copy.
  const std::string name = segments_.Files(".seg").front();
  std::filesystem::copy_file(segments_.path() + "/" + name, segments_.path() + "/copy.seg");
  ASSERT_TRUE(exporter::Eventually([&] {
    return daemon.Scrape().Value("nccl_exporter_segments", {{"state", "exited"}}).value_or(0) == 1;
  }));
  std::filesystem::resize_file(segments_.path() + "/copy.seg", 9000);
  const double before = Errors(daemon, "truncated") + Errors(daemon, "bad_geometry");
  exporter::SleepMilliseconds(1200);
  EXPECT_GE(Errors(daemon, "truncated") + Errors(daemon, "bad_geometry"), before);
  EXPECT_EQ(daemon.Scrape().Value("nccl_exporter_segments", {{"state", "live"}}).value_or(0), 2);
  EXPECT_EQ(job.Wait(), 0);
  // This daemon added the copy to the rank that it is a copy of, and what a series has counted it
  // keeps.
  const Daemon without_the_copy(segments_.path());
  const Exposition exact = without_the_copy.Scrape();
  ExpectEqualsTruth(exact, ReadTruth(TruthPath()));
  EXPECT_GT(Operations(daemon.Scrape()), Operations(exact));
}

}  // namespace
}  // namespace nccl_exporter
