// SPDX-License-Identifier: Apache-2.0
// Checks of `nccl-exporter doctor`, by what they are shown.
#include "exporter/cli/doctor/checks.h"

#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

constexpr const char* kPlugin = "plugin/libnccl-profiler-exporter.so";
constexpr Writer kSomeUser{.uid = 1234, .gid = 1234};

class DirectoryTest : public testing::Test {
 protected:
  Check CheckMode(mode_t mode, const Writer& writer = kSomeUser) {
    ::chmod(directory_.path().c_str(), mode);
    return CheckDirectory(directory_.path(), writer, false);
  }

  const collector::ScratchDirectory directory_;
};

TEST_F(DirectoryTest, MustBeWritableByTheProcess) {
  EXPECT_EQ(CheckMode(0755).verdict, Verdict::kFail);
  EXPECT_THAT(CheckMode(0755).detail, HasSubstr("user 1234 cannot make files"));
  EXPECT_THAT(CheckMode(0755).change, HasSubstr("chmod 1777 " + directory_.path()));
  EXPECT_NE(CheckMode(0755, {.uid = ::geteuid(), .gid = ::getegid()}).verdict, Verdict::kFail);
  EXPECT_NE(CheckMode(01777).verdict, Verdict::kFail);
}

TEST_F(DirectoryTest, MustNotLetUsersRemoveFilesOfOthers) {
  EXPECT_EQ(CheckMode(0777).verdict, Verdict::kFail);
  EXPECT_THAT(CheckMode(0777).change, HasSubstr("chmod +t"));
}

TEST_F(DirectoryTest, MayBeMissingUnlessItWasChosen) {
  const std::string missing = directory_.path() + "/missing";
  EXPECT_EQ(CheckDirectory(missing, kSomeUser, false).verdict, Verdict::kWarn);
  EXPECT_EQ(CheckDirectory(missing, kSomeUser, true).verdict, Verdict::kFail);
  EXPECT_THAT(CheckDirectory(missing, kSomeUser, true).change,
              HasSubstr("install -d -m 1777 " + missing));
}

TEST_F(DirectoryTest, MustBeADirectory) {
  const std::string file = directory_.path() + "/file";
  std::ofstream{file};
  EXPECT_EQ(CheckDirectory(file, kSomeUser, false).verdict, Verdict::kFail);
  EXPECT_EQ(CheckDirectory(file, kSomeUser, false).detail, "it is no directory");
}

TEST(PluginTest, IsLookedForWhereNcclLooks) {
  EXPECT_THAT(PluginPaths({{"NCCL_PROFILER_PLUGIN", "/opt/x.so"}}),
              testing::ElementsAre("/opt/x.so"));
  const std::vector<std::string> paths =
      PluginPaths({{"NCCL_PROFILER_PLUGIN", "exporter"}, {"LD_LIBRARY_PATH", ":/opt/lib"}});
  EXPECT_EQ(paths.at(0), "/opt/lib/exporter");
  EXPECT_EQ(paths.at(1), "/opt/lib/libnccl-profiler-exporter.so");
  EXPECT_THAT(PluginPaths({}),
              testing::ElementsAre("/usr/lib/nccl-exporter/libnccl-profiler-exporter.so"));
}

TEST(PluginTest, OursLoadsOnThisMachineWithARecentGlibc) {
  const uint16_t machine = ReadLibrary("/proc/self/exe").machine;
  const Check check = CheckPlugin(kPlugin, machine, {2, 99}, kSomeUser);
  EXPECT_EQ(check.verdict, Verdict::kOk) << CheckLine(check);
  EXPECT_THAT(check.detail, HasSubstr("ncclProfiler_v1 to ncclProfiler_v"));
  const Check old = CheckPlugin(kPlugin, machine, {2, 1}, kSomeUser);
  EXPECT_EQ(old.verdict, Verdict::kFail);
  EXPECT_THAT(old.detail, HasSubstr("the process has 2.1"));
  const Check other = CheckPlugin(kPlugin, EM_SPARC, {}, kSomeUser);
  EXPECT_EQ(other.verdict, Verdict::kFail);
  EXPECT_THAT(other.detail, HasSubstr("the process for machine 2"));
}

std::string OurLibc() {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>()};
  return MappedFile(text, "libc.so.6");
}

TEST(PluginTest, ACLibraryHasTheVersionThatItNames) {
  const GlibcVersion version = ReadLibrary(OurLibc()).glibc;
  EXPECT_EQ(fmt::format("{}.{}", version.first, version.second), gnu_get_libc_version());
}

TEST(PluginTest, OtherFilesAreRefusedWithTheReason) {
  const collector::ScratchDirectory directory;
  const std::string text = directory.path() + "/text.so";
  std::ofstream(text) << "no ELF";
  EXPECT_EQ(CheckPlugin(text, EM_X86_64, {}, kSomeUser).detail, "it is no ELF file");
  EXPECT_EQ(CheckPlugin(directory.path() + "/none", EM_X86_64, {}, kSomeUser).detail,
            "No such file or directory");
  ::chmod(text.c_str(), 0600);
  EXPECT_THAT(CheckPlugin(text, EM_X86_64, {}, kSomeUser).detail, HasSubstr("1234 cannot read it"));
  ::chmod(directory.path().c_str(), 0755);
  EXPECT_EQ(CheckPlugin(directory.path(), EM_X86_64, {}, kSomeUser).detail,
            "it is no regular file");
  EXPECT_THAT(CheckPlugin(OurLibc(), ReadLibrary("/proc/self/exe").machine, {}, {}).detail,
              HasSubstr("ncclProfiler_vN"));
}

// Every beginning of a real file, which is what a torn copy is.
TEST(LibraryFileTest, ATornFileIsReadToItsEnd) {
  std::ifstream file(kPlugin, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const collector::ScratchDirectory directory;
  const std::string torn = directory.path() + "/torn.so";
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 50) {
    std::ofstream(torn, std::ios::binary) << bytes.substr(0, size);
    EXPECT_EQ(ReadLibrary(torn).fault.empty(), size >= sizeof(Elf64_Ehdr)) << size;
  }
}

TEST(LibraryFileTest, TextsAreFoundAcrossThePiecesThatAreRead) {
  const collector::ScratchDirectory directory;
  const std::string file = directory.path() + "/libnccl.so";
  constexpr int kPieceBytes = 1 << 20;
  for (int before = kPieceBytes - 30; before < kPieceBytes + 5; ++before) {
    std::ofstream(file) << std::string(static_cast<size_t>(before), ' ') << "NCCL version 2.30.7\n";
    EXPECT_EQ(NcclVersionOfLibrary(file), 23007) << before;
  }
}

TEST(NcclTest, ReleasesAreToldByWhatTheyCanMeasure) {
  EXPECT_EQ(CheckNccl(22809, "", "").verdict, Verdict::kOk);
  EXPECT_EQ(CheckNccl(22809, "", "").what, "NCCL 2.28.9");
  EXPECT_EQ(CheckNccl(22603, "", "").verdict, Verdict::kWarn);
  EXPECT_EQ(CheckNccl(22200, "", "").verdict, Verdict::kFail);
  EXPECT_EQ(CheckNccl(0, "no library", "").verdict, Verdict::kWarn);
  const collector::ScratchDirectory directory;
  std::ofstream(directory.path() + "/libnccl.so.2")
      << "xNCCL version %sNCCL version 2.30.7+cuda13.0";
  EXPECT_EQ(NcclVersionOfLibrary(directory.path() + "/libnccl.so.2"), 23007);
  EXPECT_EQ(NcclVersionOfLibrary(directory.path() + "/none"), 0);
}

TEST(NcclTest, MustUnderstandTheFormOfThePluginsName) {
  const auto verdict = [](int version, const char* plugin) {
    return CheckNccl(version, "", plugin).verdict;
  };
  EXPECT_EQ(verdict(22703, "/opt/plugin.so"), Verdict::kFail);
  EXPECT_THAT(CheckNccl(22703, "", "/opt/plugin.so").change,
              HasSubstr("=libnccl-profiler-exporter.so, with"));
  EXPECT_NE(verdict(22703, "exporter"), Verdict::kFail);
  EXPECT_NE(verdict(22705, "/opt/plugin.so"), Verdict::kFail);
  EXPECT_NE(verdict(22603, "exporter"), Verdict::kFail);
  EXPECT_EQ(verdict(22501, "exporter"), Verdict::kFail);
  EXPECT_NE(verdict(22501, "libplugin.so"), Verdict::kFail);
  EXPECT_NE(verdict(22501, "/opt/plugin.so"), Verdict::kFail);
}

TEST(ProcTest, MapsAndStatusAreRead) {
  const std::string maps =
      "7f00-7f01 r-xp 00000000 00:00 1  /usr/lib/libc.so.6\n"
      "7f02-7f03 r-xp 00000000 00:00 2  /opt/a b/libnccl.so.2.28.9\n";
  EXPECT_EQ(MappedFile(maps, "libnccl.so"), "/opt/a b/libnccl.so.2.28.9");
  EXPECT_EQ(MappedFile(maps, "libnccl-net.so"), "");
  EXPECT_EQ(InnermostPid("Name:\tpython\nNSpid:\t4711\t33\nNSsid:\t1\n"), 33u);
  EXPECT_EQ(InnermostPid("Name:\tpython\n"), 0u);
}

constexpr const char* kSegment = "/run/x/0123456789abcdef-0123456789abcdef.seg";

TEST(SegmentTest, IsFoundInTheMapsByItsName) {
  const std::string line = "7f02-7f03 rw-s 00000000 00:00 2  ";
  EXPECT_EQ(MappedSegment(line + "/tmp/other.seg\n" + line + kSegment + "\n"), kSegment);
  EXPECT_EQ(MappedSegment(line + kSegment + " (deleted)\n"), std::string(kSegment) + " (deleted)");
  EXPECT_EQ(MappedSegment(line + "/tmp/other.seg\n"), "");
}

TEST(SegmentTest, MustBeThereAndAlive) {
  collector::NodeSnapshot node;
  EXPECT_THAT(CheckSegment(node, 33, "").front().detail, HasSubstr("has none"));
  EXPECT_THAT(CheckSegment(node, 33, kSegment).front().detail,
              HasSubstr(std::string("it is ") + kSegment + " for the process, and in none of"));
  node.processes.resize(2);
  node.processes[0].pid = node.processes[1].pid = 33;  // of two PID namespaces
  node.processes[0].segment = "a.seg";
  node.processes[1].segment = "0123456789abcdef-0123456789abcdef.seg";
  node.processes[0].is_alive = true;
  EXPECT_THAT(CheckSegment(node, 33, kSegment).front().detail, HasSubstr("is not locked"));
  node.processes[1].is_alive = true;
  node.processes[1].communicators.resize(1);
  node.processes[1].communicators[0].has_identity = true;
  const std::vector<Check> checks = CheckSegment(node, 33, kSegment);
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].verdict, Verdict::kOk);
  EXPECT_THAT(checks[0].detail, HasSubstr("1 communicator, 0 operations in flight"));
  EXPECT_EQ(checks[1].verdict, Verdict::kOk) << CheckLine(checks[1]);
  node.processes[1].communicators[0].timing_reason = TimingReason::kAllgathervEnabled;
  EXPECT_THAT(CheckLine(CheckSegment(node, 33, kSegment)[1]),
              HasSubstr("change: NCCL_ALLGATHERV_ENABLE=0 on all ranks"));
  node.processes[1].communicators[0].timing_reason = TimingReason::kRegistrationEnabled;
  EXPECT_THAT(CheckLine(CheckSegment(node, 33, kSegment)[1]),
              HasSubstr("change: NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0"));
  EXPECT_THAT(CheckSegment(node, 34, kSegment).front().detail, HasSubstr("which forked this one"));
}

TEST(DaemonTest, AnAnswerIsJudged) {
  const auto verdict = [](int status, const std::string& body) {
    return CheckDaemon(":1", {.status_line = fmt::format("HTTP/1.1 {} X", status),
                              .status = status,
                              .body = body,
                              .fault = "",
                              .is_connected = true})
        .verdict;
  };
  EXPECT_EQ(verdict(200, "Ready\n"), Verdict::kOk);
  EXPECT_EQ(verdict(401, ""), Verdict::kOk);
  EXPECT_EQ(verdict(503, ""), Verdict::kWarn);
  EXPECT_EQ(verdict(404, ""), Verdict::kFail);
  EXPECT_EQ(verdict(200, "Prometheus Server is Ready.\n"), Verdict::kFail);
  PlainAnswer answer;
  answer.fault = "Connection refused";
  EXPECT_EQ(CheckDaemon(":1", answer).verdict, Verdict::kFail);
  answer = {};
  answer.is_connected = true;
  EXPECT_EQ(CheckDaemon(":1", answer).verdict, Verdict::kWarn);
  answer.status_line = "SSH-2.0-x";
  EXPECT_EQ(CheckDaemon(":1", answer).verdict, Verdict::kWarn);
}

}  // namespace
}  // namespace nccl_exporter::exporter
