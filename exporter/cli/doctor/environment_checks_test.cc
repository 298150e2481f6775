// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "exporter/cli/doctor/checks.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

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

// C1 and turns of direction reach a terminal as valid UTF-8: CSI is U+009B, and U+202E turns what
// follows.
TEST(EnvironmentTest, TextsOfAProcessAreShownAsTheyAre) {
  const std::string unseen = "\u009b2J\u0085\u202e\u2066\u200b\x9b\x1b[2J\r";
  const Environment environment{{"NCCL_PROFILER_PLUGIN", "/opt/x" + unseen + ".so"},
                                {"NCCL_EXPORTER_DIR" + unseen, "/x"},
                                {"NCCL_EXPORTER_KERNEL_TIMING", "on" + unseen},
                                {"NCCL_EXPORTER_DIR", "/dir" + unseen}};
  std::vector<Check> checks = CheckEnvironment(environment, false);
  EXPECT_GE(checks.size(), 3u);
  checks.push_back(CheckDirectory("/dir" + unseen, {}, true));
  checks.push_back(CheckPlugin("/opt/x" + unseen + ".so", 0, {}, {}));
  checks.push_back(CheckNccl(0, "no library" + unseen, "x" + unseen));
  checks.push_back(CheckDaemon(":1", {.status_line = "SSH-2.0" + unseen,
                                      .status = 0,
                                      .body = "",
                                      .fault = "",
                                      .is_connected = true}));
  for (const Check& check : checks) {
    const std::string line = CheckLine(check);
    EXPECT_EQ(line, ValidUtf8(line)) << line;
    EXPECT_THAT(line, testing::Not(HasSubstr("\u202e")));
  }
  EXPECT_THAT(CheckLine(checks.front()), HasSubstr("/opt/x?2J????\uFFFD?[2J?.so"));
}

// Regression: names were checked, and values were not.
TEST(EnvironmentTest, ValuesAreThoseThatThePluginUnderstands) {
  const auto line_of = [](const std::string& name, const std::string& value) {
    return CheckLine(
        CheckEnvironment({{"NCCL_PROFILER_PLUGIN", "exporter"}, {name, value}}, false).back());
  };
  EXPECT_THAT(
      line_of("NCCL_EXPORTER_NETWORK_TIMING", "0,1"),
      testing::StartsWith("FAIL NCCL_EXPORTER_NETWORK_TIMING: the plugin does not understand "
                          "'0,1': 'auto' is in force; change: network operations whose"));
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"NCCL_EXPORTER_NETWORK_TIMING", "10%"},
                                                        {"NCCL_EXPORTER_ENABLE", "false"},
                                                        {"NCCL_EXPORTER_COMMUNICATORS", "5000"},
                                                        {"NCCL_EXPORTER_RETENTION_SECONDS", "5m"},
                                                        {"NCCL_EXPORTER_KERNEL_TIMING", "1"},
                                                        {"NCCL_EXPORTER_NETWORK_TIMING", "AUTO"}})
    EXPECT_THAT(line_of(name, value), testing::StartsWith("FAIL ")) << name;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"NCCL_EXPORTER_NETWORK_TIMING", "0.1"},
                                                        {"NCCL_EXPORTER_ENABLE", "1"},
                                                        {"NCCL_EXPORTER_ENABLE", ""},
                                                        {"NCCL_EXPORTER_DIR", "/anything"},
                                                        {"NCCL_EXPORTER_JOB", "llama"},
                                                        {"NCCL_EXPORTER_KERNEL_TIMING", "on"}})
    EXPECT_THAT(line_of(name, value), testing::StartsWith("ok ")) << name;
}

TEST(EnvironmentTest, NoneIsNoPlugin) {
  for (const char* const none : {"none", "NONE"}) {
    const Check check = CheckEnvironment({{"NCCL_PROFILER_PLUGIN", none}}, false).front();
    EXPECT_EQ(check.verdict, Verdict::kFail);
    EXPECT_THAT(check.detail, HasSubstr("NCCL loads no profiler plugin"));
    EXPECT_THAT(check.change, HasSubstr("set it to the path"));
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
