// SPDX-License-Identifier: Apache-2.0
// Checks of `nccl-exporter doctor`, by what they are shown.
#include "exporter/doctor/checks.h"

#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "collector/testing/scratch_directory.h"
#include "exporter/doctor/doctor.h"

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

TEST(EnvironmentTest, NamesThePluginAndUnknownVariables) {
  using namespace std::string_literals;
  const Environment environment = ParseEnvironment(
      "A=1\0NCCL_PROFILER_PLUGIN=exporter\0NCCL_EXPORTER_KERNEL_TIMNG=on\0"
      "NCCL_EXPORTER_ENABLE=0\0broken\0"s);
  EXPECT_EQ(environment.size(), 4u);
  std::vector<std::string> lines;
  for (const Check& check : CheckEnvironment(environment, false)) lines.push_back(CheckLine(check));
  EXPECT_THAT(lines,
              testing::ElementsAre("ok   NCCL_PROFILER_PLUGIN: exporter",
                                   "FAIL NCCL_EXPORTER_ENABLE: 0: the plugin is switched off; "
                                   "change: remove it",
                                   "warn NCCL_EXPORTER_KERNEL_TIMNG: the plugin does not read it; "
                                   "change: did you mean NCCL_EXPORTER_KERNEL_TIMING?"));
  EXPECT_EQ(CheckEnvironment({}, false).front().verdict, Verdict::kFail);
  EXPECT_EQ(CheckEnvironment({}, true).front().verdict, Verdict::kOk);
}

TEST(EnvironmentTest, NamesSlipsInPrefixesAndLeavesOtherProgramsAlone) {
  const auto line_of = [](const std::string& name) {
    const std::vector<Check> checks =
        CheckEnvironment({{"NCCL_PROFILER_PLUGIN", "exporter"}, {name, "1"}}, false);
    return checks.size() == 1 ? "" : CheckLine(checks.back());
  };
  EXPECT_THAT(line_of("NCCL_EXPORTR_DIR"), HasSubstr("did you mean NCCL_EXPORTER_DIR?"));
  EXPECT_THAT(line_of("NCCL_EXPORTER_UNHEARD_OF"), HasSubstr("change: remove it"));
  for (const char* const other : {"NCCL_DEBUG", "NCCL_NET_PLUGIN", "OTEL_EXPORTER_OTLP_ENDPOINT"})
    EXPECT_EQ(line_of(other), "");
  EXPECT_EQ(CheckEnvironment({{"NCCL_PROFILE_PLUGIN", "x"}}, false).front().change,
            "rename NCCL_PROFILE_PLUGIN");
  EXPECT_THAT(CheckEnvironment({{"NCCL_TUNER_PLUGIN", "x"}, {"NCCL_NET_PLUGIN", "x"}}, false)
                  .front()
                  .change,
              HasSubstr("set it to the path"));
}

// The list is a copy: rooms of daemon and plugin do not include each other.
TEST(EnvironmentTest, VariablesAreThoseInThePlugin) {
  std::ifstream file(kPlugin, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_FALSE(bytes.empty());
  constexpr std::string_view kPrefix = "NCCL_EXPORTER_";
  std::set<std::string> names;
  for (size_t at = bytes.find(kPrefix); at != std::string::npos; at = bytes.find(kPrefix, at + 1)) {
    const auto end = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(),
                                  [](char c) { return (c < 'A' || c > 'Z') && c != '_'; });
    names.emplace(bytes.begin() + static_cast<std::ptrdiff_t>(at), end);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(PluginVariables()));
}

TEST(PluginTest, IsLookedForWhereNcclLooks) {
  EXPECT_THAT(PluginPaths({{"NCCL_PROFILER_PLUGIN", "/opt/x.so"}}, "/proc/7/root"),
              testing::ElementsAre("/proc/7/root/opt/x.so"));
  const std::vector<std::string> paths =
      PluginPaths({{"NCCL_PROFILER_PLUGIN", "exporter"}, {"LD_LIBRARY_PATH", ":/opt/lib"}}, "");
  EXPECT_EQ(paths.at(0), "/opt/lib/exporter");
  EXPECT_EQ(paths.at(1), "/opt/lib/libnccl-profiler-exporter.so");
  EXPECT_THAT(PluginPaths({}, ""),
              testing::ElementsAre("/usr/lib/nccl-exporter/libnccl-profiler-exporter.so"));
}

TEST(PluginTest, OursLoadsOnThisMachineWithARecentGlibc) {
  const uint16_t machine = ReadElfFile("/proc/self/exe").machine;
  const Check check = CheckPlugin(kPlugin, machine, {.major = 2, .minor = 99}, kSomeUser);
  EXPECT_EQ(check.verdict, Verdict::kOk) << CheckLine(check);
  EXPECT_THAT(check.detail, HasSubstr("ncclProfiler_v1 to ncclProfiler_v"));
  const Check old = CheckPlugin(kPlugin, machine, {.major = 2, .minor = 1}, kSomeUser);
  EXPECT_EQ(old.verdict, Verdict::kFail);
  EXPECT_THAT(old.detail, HasSubstr("the process has 2.1"));
  const Check other = CheckPlugin(kPlugin, EM_SPARC, {}, kSomeUser);
  EXPECT_EQ(other.verdict, Verdict::kFail);
  EXPECT_THAT(other.detail, HasSubstr("the process for machine 2"));
}

// Regression: a release carries a libc of its own, and doctor compared the plugin with that.
TEST(PluginTest, TheSystemsLibcIsTheFileAndNotOurOwn) {
  const collector::ScratchDirectory directory;
  EXPECT_EQ(SystemLibc(directory.path()), GlibcVersion());
  const std::string folder = directory.path() + "/lib64";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/libc.so.6") << "no ELF";
  EXPECT_EQ(SystemLibc(directory.path()), GlibcVersion());
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>()};
  std::filesystem::copy_file(MappedFile(text, "libc.so.6"), folder + "/libc.so.6",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(SystemLibc(directory.path()).Text(), gnu_get_libc_version());
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
  EXPECT_THAT(CheckPlugin("/proc/self/exe", ReadElfFile("/proc/self/exe").machine, {}, {}).detail,
              testing::AnyOf(HasSubstr("ncclProfiler_vN"), HasSubstr("no regular file")));
}

// Every beginning of a real file, which is what a torn copy is.
TEST(ElfFileTest, ATornFileIsReadWithoutAFault) {
  std::ifstream file(kPlugin, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const collector::ScratchDirectory directory;
  const std::string torn = directory.path() + "/torn.so";
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 50) {
    std::ofstream(torn, std::ios::binary) << bytes.substr(0, size);
    const ElfFile elf = ReadElfFile(torn);
    EXPECT_EQ(elf.fault.empty(), size >= sizeof(Elf64_Ehdr)) << size;
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
  EXPECT_THAT(CheckSegment(node, 34, kSegment).front().detail, HasSubstr("which forked this one"));
}

TEST(LogPathTest, IsTheOneThatNcclMakes) {
  EXPECT_EQ(NcclLogPath("/var/log/nccl.%h.%p", "node-1.example.org", 4711),
            "/var/log/nccl.node-1.4711");
  EXPECT_EQ(NcclLogPath("100%%-%x-%", "node-1", 1), "100%-%x-%");
}

class PluginLogTest : public testing::Test {
 protected:
  Check CheckText(const std::string& text, const std::string& level = "INFO") {
    std::ofstream(path_, std::ios::binary) << text;
    return CheckPluginLog({{"NCCL_DEBUG", level}}, path_, "nccl.log");
  }

  const collector::ScratchDirectory directory_;
  const std::string path_ = directory_.File("nccl.log");
};

TEST_F(PluginLogTest, ShowsTheLastLineOfThePluginAlone) {
  const std::string info = "node-1:7:9 [0] NCCL INFO ";
  const Check check =
      CheckText(info + "nccl-exporter 0.1.0: segment /run/a.seg\n" + info +
                "nccl-exporter 0.1.0: segment /run/b.seg\n" + info +
                "PROFILER/Plugin: loaded /usr/lib/nccl-exporter/libnccl-profiler-exporter.so\n" +
                std::string(3 << 20, 'x') + "\nstep 100\n");
  EXPECT_EQ(CheckLine(check),
            "ok   last line of the plugin: NCCL INFO nccl-exporter 0.1.0: segment /run/b.seg, in "
            "nccl.log");
}

TEST_F(PluginLogTest, WarnsOfAWarning) {
  const Check check = CheckText(
      "node-1:7:9 [0] process.cc:92 NCCL WARN nccl-exporter: no metrics from this process: "
      "no room\x1b[31m",
      "warn");
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_THAT(CheckLine(check), HasSubstr("no metrics from this process: no room"));
  EXPECT_THAT(CheckLine(check), testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(check.change, HasSubstr("NCCL_DEBUG=INFO"));
}

TEST_F(PluginLogTest, FindsALineThatLiesInTwoPieces) {
  const std::string line = "node-1:7:9 [0] NCCL INFO nccl-exporter 0.1.0: segment /run/a.seg\n";
  for (const size_t before : {(1 << 20) - 20, (1 << 20) - 40, (1 << 20) - 60}) {
    EXPECT_THAT(CheckText(std::string(before, '\n') + line).detail,
                HasSubstr("segment /run/a.seg, in"))
        << before;
  }
}

TEST_F(PluginLogTest, SaysWhereTheLineWouldBe) {
  EXPECT_THAT(CheckPluginLog({}, path_, "nccl.log").detail, HasSubstr("without NCCL_DEBUG"));
  EXPECT_THAT(CheckPluginLog({{"NCCL_DEBUG", "VERSION"}}, path_, "nccl.log").change,
              HasSubstr("NCCL_DEBUG=INFO"));
  EXPECT_EQ(CheckText("step 1\n").detail, "none in nccl.log");
  EXPECT_EQ(CheckText("step 1\n").verdict, Verdict::kWarn);
  EXPECT_EQ(CheckPluginLog({{"NCCL_DEBUG", "INFO"}}, directory_.File("no"), "no").detail,
            "the plugin logs to no: No such file or directory");
  ASSERT_EQ(::mkfifo(directory_.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(CheckPluginLog({{"NCCL_DEBUG", "INFO"}}, directory_.File("pipe"), "pipe").detail,
              HasSubstr("look there for nccl-exporter"));
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

// With a false /proc: nothing of this machine's processes is looked at.
TEST(ExamineTest, GoesThroughAProcessInOrder) {
  const collector::ScratchDirectory proc;
  const std::string folder = proc.path() + "/33";
  std::filesystem::create_directories(folder + "/root/opt");
  std::filesystem::copy_file(kPlugin, folder + "/root/opt/plugin.so");
  std::filesystem::copy_file("/proc/self/exe", folder + "/exe");
  std::ofstream(folder + "/environ")
      << "NCCL_PROFILER_PLUGIN=/opt/plugin.so" << '\0' << "NCCL_DEBUG=INFO" << '\0'
      << "NCCL_DEBUG_FILE=/opt/log.%p" << '\0';
  std::ofstream(folder + "/root/opt/log.33") << "n:33:33 [0] NCCL INFO nccl-exporter 0.1.0: yes\n";
  std::ofstream(folder + "/maps") << "7f00-7f01 r-xp 0 00:00 1  /bin/python3\n";
  std::ofstream(folder + "/status") << "NSpid:\t33\n";
  const std::vector<Check> checks = Examine(
      {.segment_dirs = {proc.path()}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, {});
  std::vector<std::string> names;
  for (const Check& check : checks) names.push_back(check.what);
  EXPECT_THAT(names, testing::ElementsAre("directory " + proc.path(),
                                          "plugin " + folder + "/root/opt/plugin.so", "NCCL",
                                          "NCCL_PROFILER_PLUGIN", "last line of the plugin",
                                          "segment of process 33"));
  EXPECT_EQ(checks[4].detail, "NCCL INFO nccl-exporter 0.1.0: yes, in /opt/log.33");
  EXPECT_EQ(checks[1].verdict, Verdict::kOk) << CheckLine(checks[1]);
  EXPECT_EQ(checks.back().verdict, Verdict::kFail);
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

TEST(ExamineTest, WithoutALogFileTheStandardOutputIsTheLog) {
  const collector::ScratchDirectory proc;
  const std::string folder = proc.path() + "/33", log = proc.File("slurm-7.out");
  std::filesystem::create_directories(folder + "/fd");
  std::filesystem::create_symlink(log, folder + "/fd/1");
  std::ofstream(log) << "n:33:33 [0] NCCL INFO nccl-exporter 0.1.0: yes\n";
  std::ofstream(folder + "/environ") << "NCCL_DEBUG=INFO" << '\0';
  std::ofstream(folder + "/maps") << "7f00-7f01 r-xp 0 00:00 1  /bin/python3\n";
  std::ofstream(folder + "/status") << "NSpid:\t33\n";
  const std::vector<Check> checks =
      Examine({.segment_dirs = {}, .listen_addresses = {}, .pid = 33, .proc = proc.path()}, {});
  const auto line = std::ranges::find(checks, "last line of the plugin", &Check::what);
  ASSERT_NE(line, checks.end());
  EXPECT_EQ(line->detail,
            "NCCL INFO nccl-exporter 0.1.0: yes, in its standard output (" + log + ")");
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
