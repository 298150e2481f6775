// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "collector/testing/scratch_directory.h"
#include "exporter/cli/doctor/checks.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

constexpr const char* kPlugin = "plugin/libnccl-profiler-exporter.so";
constexpr const char* kSegment = "/run/x/0123456789abcdef-0123456789abcdef.seg";

// With a false /proc: nothing of this machine's processes is looked at.
TEST(ExamineTest, GoesThroughAProcessInOrder) {
  const collector::ScratchDirectory proc;
  const std::string folder = proc.path() + "/33";
  std::filesystem::create_directories(folder + "/root/opt");
  std::filesystem::copy_file(kPlugin, folder + "/root/opt/plugin.so");
  std::filesystem::copy_file("/proc/self/exe", folder + "/exe");
  std::ofstream(folder + "/environ")
      << "NCCL_PROFILER_PLUGIN=/opt/plugin.so" << '\0' << "NCCL_DEBUG=INFO" << '\0';
  std::ofstream(folder + "/maps") << "7f00-7f01 r-xp 0 00:00 1  /bin/python3\n";
  std::ofstream(folder + "/status") << "NSpid:\t33\n";
  const std::vector<Check> checks = Examine(
      {.segment_dirs = {proc.path()}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, {});
  std::vector<std::string> names;
  for (const Check& check : checks) names.push_back(check.what);
  EXPECT_THAT(names, testing::ElementsAre("directory " + proc.path(),
                                          "plugin " + folder + "/root/opt/plugin.so", "NCCL",
                                          "NCCL_PROFILER_PLUGIN", "segment of process 33"));
  EXPECT_EQ(checks[1].verdict, Verdict::kOk) << CheckLine(checks[1]);
  EXPECT_EQ(checks.back().verdict, Verdict::kFail);
}

TEST(ExamineTest, SaysWhereTheReleaseOfNcclIsFrom) {
  const collector::ScratchDirectory proc;
  const std::string folder = proc.path() + "/33";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file("/proc/self/exe", folder + "/exe");
  std::ofstream(folder + "/environ");
  std::ofstream(folder + "/maps") << "7f02-7f03 rw-s 00000000 00:00 2  " << kSegment << '\n';
  std::ofstream(folder + "/status") << "NSpid:\t33\n";
  collector::NodeSnapshot node;
  node.processes.resize(1);
  node.processes[0].pid = 33;
  node.processes[0].segment = "0123456789abcdef-0123456789abcdef.seg";
  node.processes[0].communicators.resize(1);
  node.processes[0].communicators[0].nccl_version = 22809;
  const std::vector<Check> checks =
      Examine({.segment_dirs = {}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, node);
  const auto found = std::ranges::find(checks, "NCCL 2.28.9", &Check::what);
  ASSERT_NE(found, checks.end());
  EXPECT_EQ(found->detail, "reported to the plugin");
}

TEST(ExamineTest, NamesTheProcessThatHasThePidInItsOwnNamespace) {
  const collector::ScratchDirectory proc;
  for (const char* const pid : {"33", "4711", "self"})
    std::filesystem::create_directories(proc.path() + '/' + pid);
  for (const char* const file : {"environ", "maps"}) std::ofstream(proc.path() + "/33/" + file);
  std::ofstream(proc.path() + "/33/status") << "NSpid:\t33\n";
  std::ofstream(proc.path() + "/4711/status") << "NSpid:\t4711\t33\n";
  const std::vector<Check> checks =
      Examine({.segment_dirs = {}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, {});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_THAT(checks[0].detail, HasSubstr("belongs to the kernel"));
  EXPECT_THAT(checks[0].change, HasSubstr("--pid 4711, which has this PID"));
}

TEST(ExamineTest, NamesNamesakesOfAProcessWithoutASegment) {
  const collector::ScratchDirectory proc;
  for (const char* const pid : {"33", "4711"})
    std::filesystem::create_directories(proc.path() + '/' + pid);
  std::ofstream(proc.path() + "/33/environ");
  std::ofstream(proc.path() + "/33/maps") << "7f00-7f01 r-xp 0 00:00 1  /bin/cron\n";
  std::ofstream(proc.path() + "/33/status") << "NSpid:\t33\n";
  std::ofstream(proc.path() + "/4711/status") << "NSpid:\t4711\t33\n";
  const std::vector<Check> checks =
      Examine({.segment_dirs = {}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, {});
  const auto found = std::ranges::find(checks, "PID namespace", &Check::what);
  ASSERT_NE(found, checks.end());
  EXPECT_THAT(found->change, HasSubstr("--pid 4711"));
}

TEST(ExamineTest, WithoutAPidNamesTheProcessesThatHaveNcclAndAGpuButNoSegment) {
  const collector::ScratchDirectory proc;
  const auto line_of = [&] {
    const std::vector<Check> checks =
        Examine({.segment_dirs = {}, .listen_addresses = {}, .pid = 0, .proc = proc.path()}, {});
    const auto found = std::ranges::find(checks, "processes with NCCL and a GPU", &Check::what);
    return found == checks.end() ? "" : CheckLine(*found);
  };
  const auto add = [&](const std::string& pid, const std::string& file) {
    std::filesystem::create_directories(proc.path() + '/' + pid);
    std::ofstream(proc.path() + '/' + pid + "/maps", std::ios::app)
        << "7f00-7f01 r-xp 0 00:00 1  " << file << '\n';
  };
  add("self", "/opt/libnccl.so.2");
  add("1", "/bin/init");
  EXPECT_EQ(line_of(), "");
  add("33", "/opt/libnccl.so.2");
  EXPECT_EQ(line_of(), "");
  add("33", "/dev/nvidia0");
  EXPECT_THAT(line_of(), HasSubstr("warn processes with NCCL and a GPU: 1 of 1 have no segment"));
  EXPECT_THAT(line_of(), HasSubstr("--pid 33 says more"));
  add("33", kSegment);
  EXPECT_EQ(line_of(), "ok   processes with NCCL and a GPU: 0 of 1 have no segment");
  add("34", "/dev/nvidiactl");
  add("34", "/opt/libtorch_cuda.so");
  EXPECT_THAT(line_of(), HasSubstr("1 of 2 have no segment; change: nothing before"));
}

TEST(ExamineTest, AProcessThatIsNotThereIsOneLine) {
  const collector::ScratchDirectory proc;
  const std::vector<Check> checks =
      Examine({.segment_dirs = {}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, {});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].verdict, Verdict::kFail);
  EXPECT_THAT(checks[0].detail, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
