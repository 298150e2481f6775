// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "collector/testing/scratch_directory.h"
#include "exporter/cli/doctor/checks.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace nccl_exporter::exporter
