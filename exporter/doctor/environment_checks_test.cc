// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "exporter/doctor/checks.h"

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

// The list is a copy: rooms of daemon and plugin do not include each other.
TEST(EnvironmentTest, VariablesAreThoseInThePlugin) {
  std::ifstream file("plugin/libnccl-profiler-exporter.so", std::ios::binary);
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

}  // namespace
}  // namespace nccl_exporter::exporter
