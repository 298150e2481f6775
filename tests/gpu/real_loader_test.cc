// SPDX-License-Identifier: Apache-2.0
// The plugin as the real libnccl finds, loads and unloads it, which needs no GPU. Skipped, with the
// reason, where there is no libnccl whose loader can be called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "collector/collector.h"
#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "tests/gpu/announcements.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

constexpr char kLoaderPath[] = "tests/gpu/real_loader";
constexpr int kCannotRun = 77;

// The variables that README.md sets for a PyTorch job.
std::map<std::string, std::string> DocumentedEnvironment() {
  std::map<std::string, std::string> environment;
  std::ifstream file("README.md");
  const std::regex variable("^ *export (\\w+)=(.*)$");
  for (std::string line; std::getline(file, line);) {
    if (std::smatch match; std::regex_match(line, match, variable))
      environment[match[1]] = match[2];
  }
  return environment;
}

class RealLoader : public testing::Test {
 protected:
  void SetUp() override {
    if (const exporter::Finished probe = Load(1, {{"NCCL_PROFILER_PLUGIN", "none"}});
        probe.exit_code == kCannotRun) {
      GTEST_SKIP() << probe.output;
    }
  }

  // Begins and ends communicators, one after the other.
  exporter::Finished Load(int communicators, std::map<std::string, std::string> environment) const {
    environment.emplace("NCCL_EXPORTER_DIR", segments_.path());
    return exporter::RunToEnd({kLoaderPath, std::to_string(communicators)}, environment);
  }
  std::shared_ptr<const collector::NodeSnapshot> Snapshot() const {
    return collector::Collector({.directories = {segments_.path()}}).Snapshot();
  }
  static std::vector<collector::CommunicatorSnapshot> CommunicatorsOf(
      const collector::ProcessSnapshot& process) {
    std::vector<collector::CommunicatorSnapshot> own;
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.is_overflow) own.push_back(communicator);
    }
    return own;
  }
  static std::string Library() { return std::filesystem::absolute(kPluginPath); }

  collector::ScratchDirectory segments_;
};

TEST_F(RealLoader, FindsThePluginByItsPathAndThePluginFindsNcclsVersion) {
  const exporter::Finished loader = Load(1, {{"NCCL_PROFILER_PLUGIN", Library()}});
  ASSERT_EQ(loader.exit_code, 0) << loader.output;
  const int version = std::stoi(loader.output);
  const auto snapshot = Snapshot();
  ASSERT_EQ(snapshot->processes.size(), 1U);
  const auto communicators = CommunicatorsOf(snapshot->processes[0]);
  ASSERT_EQ(communicators.size(), 1U);
  EXPECT_EQ(communicators[0].nccl_version, version);
  EXPECT_EQ(communicators[0].api_version, AnnouncementsOf(version).api_version);
  EXPECT_TRUE(communicators[0].is_closed);
  EXPECT_NE(communicators[0].event_mask, 0U);
}

TEST_F(RealLoader, IsLoadedByTheReadmesVariablesAndItsProcessIsSeenByTheDaemon) {
  std::map<std::string, std::string> environment = DocumentedEnvironment();
  ASSERT_TRUE(environment.contains("NCCL_PROFILER_PLUGIN"));
  environment["NCCL_PROFILER_PLUGIN"] = Library();  // the one of this build
  const Daemon daemon(segments_.path());
  const exporter::Finished loader = Load(1, environment);
  ASSERT_EQ(loader.exit_code, 0) << loader.output;
  // NCCL before 2.27 gives plugins no logger.
  const bool has_logger = loader.output.find("Loaded nccl-exporter (v3)") == std::string::npos;
  if (has_logger) {
    EXPECT_THAT(loader.output, testing::ContainsRegex("NCCL INFO nccl-exporter [0-9.]+: segment " +
                                                      segments_.path()));
  }
  const auto infos = daemon.Scrape().Find("nccl_process_alive");
  EXPECT_EQ(infos.size(), 1U) << loader.output;
}

TEST_F(RealLoader, FindsThePluginByItsShortNameOnTheLoadersSearchPath) {
  const exporter::Finished loader =
      Load(1, {{"NCCL_PROFILER_PLUGIN", "exporter"},
               {"LD_LIBRARY_PATH", std::filesystem::path(Library()).parent_path()}});
  ASSERT_EQ(loader.exit_code, 0) << loader.output;
  if (AnnouncementsOf(std::stoi(loader.output)).api_version < 3)
    GTEST_SKIP() << "short names came with NCCL 2.26";
  EXPECT_EQ(segments_.Files(".seg").size(), 1U);
}

TEST_F(RealLoader, KeepsOneSegmentWhenNcclUnloadsThePluginAndLoadsItAgain) {
  const exporter::Finished loader = Load(3, {{"NCCL_PROFILER_PLUGIN", Library()}});
  ASSERT_EQ(loader.exit_code, 0) << loader.output;
  const auto snapshot = Snapshot();
  ASSERT_EQ(snapshot->processes.size(), 1U);
  EXPECT_EQ(CommunicatorsOf(snapshot->processes[0]).size(), 3U);
}

TEST_F(RealLoader, SaysThroughNcclsLoggerWhereTheSegmentIs) {
  const exporter::Finished loader =
      Load(1, {{"NCCL_PROFILER_PLUGIN", Library()}, {"NCCL_DEBUG", "INFO"}});
  ASSERT_EQ(loader.exit_code, 0) << loader.output;
  const auto files = segments_.Files(".seg");
  ASSERT_EQ(files.size(), 1U);
  EXPECT_NE(loader.output.find(segments_.path() + "/" + files[0]), std::string::npos)
      << loader.output;
}

TEST_F(RealLoader, LeavesNoSegmentWhereThePluginIsNotAskedFor) {
  ASSERT_EQ(Load(1, {{"NCCL_PROFILER_PLUGIN", "none"}}).exit_code, 0);
  EXPECT_TRUE(segments_.Files().empty());
}

}  // namespace
}  // namespace nccl_exporter
