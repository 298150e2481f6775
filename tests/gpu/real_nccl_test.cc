// SPDX-License-Identifier: Apache-2.0
// The plugin under the real NCCL on a GPU: a job of several processes writes its ground truth, and
// what the daemon exports must equal it. Skipped, with the reason, where there is no GPU or no
// NCCL.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "collector/collector.h"
#include "tests/gpu/ground_truth_comparison.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

constexpr char kJobPath[] = "tests/gpu/nccl_job";
constexpr int kCannotRun = 77;
constexpr int kNoLibrary = 127;  // the dynamic linker's: built with NCCL, run without

struct Setting {
  const char* name;
  const char* kernel_timing;
  std::vector<std::string> job_options;
};

class RealNccl : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    std::vector<std::string> command{kJobPath, "--probe"};
    command.insert(command.end(), GetParam().job_options.begin(), GetParam().job_options.end());
    const exporter::Finished probe = exporter::RunToEnd(command);
    if (probe.exit_code == kCannotRun || probe.exit_code == kNoLibrary)
      GTEST_SKIP() << probe.output;
    ASSERT_EQ(probe.exit_code, 0) << probe.output;
    std::cout << probe.output;
  }

  std::string TruthPath() const { return results_.path() + "/truth.json"; }

  // Runs the job with the plugin to its end, and returns its ground truth.
  nlohmann::json RunJob() {
    std::vector<std::string> command{kJobPath, "--truth", TruthPath()};
    command.insert(command.end(), GetParam().job_options.begin(), GetParam().job_options.end());
    const exporter::Finished job = exporter::RunToEnd(
        command, {{"NCCL_PROFILER_PLUGIN", std::filesystem::absolute(kPluginPath)},
                  {"NCCL_EXPORTER_DIR", segments_.path()},
                  {"NCCL_EXPORTER_KERNEL_TIMING", GetParam().kernel_timing},
                  {"NCCL_ALLGATHERV_ENABLE", "0"},
                  {"NCCL_DEBUG", "WARN"}});
    EXPECT_EQ(job.exit_code, 0) << job.output;
    return job.exit_code == 0 ? ReadTruth(TruthPath()) : nlohmann::json();
  }

  collector::ScratchDirectory segments_;
  collector::ScratchDirectory results_;
};

TEST_P(RealNccl, CountsExactlyWhatTheJobDidAndTimesItPlausibly) {
  // However long the job takes: its first communicators are compared as well.
  Daemon daemon(segments_.path(), {"--segment.retention=24h"});
  nlohmann::json truth = RunJob();
  ASSERT_FALSE(HasFailure());
  collector::Collector collector(
      {.directories = {segments_.path()}, .retention = std::chrono::hours(24)});
  const auto snapshot = collector.Snapshot();
  std::cout << SummaryOf(*snapshot) << "\n";
  ExpectReleaseKnown(*snapshot, std::string(GetParam().kernel_timing) == "on");
  FillInIds(*snapshot, &truth);
  ASSERT_FALSE(HasFailure());
  ExpectCountsEqual(daemon.Scrape(), truth);
  ExpectDurationsPlausible(*snapshot, truth);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, RealNccl,
    testing::Values(Setting{"TimedByKernels", "on", {}}, Setting{"TimedByProxies", "off", {}},
                    Setting{"FourRanks", "on", {"--ranks", "4", "--largest-bytes", "33554432"}},
                    Setting{"OnOneHost", "on", {"--one-host"}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nccl_exporter
