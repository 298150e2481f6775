// SPDX-License-Identifier: Apache-2.0
#include "plugin/options.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace nccl_exporter {
namespace {

std::map<std::string, std::string> environment;

const char* Get(const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

Options Read(std::map<std::string, std::string> variables) {
  environment = std::move(variables);
  return ReadOptions(Get);
}

TEST(Options, AreTheDefaultsOfTheTableWhenNothingIsSet) {
  const Options unset = Read({});
  std::map<std::string, std::string> defaults;
  for (const OptionRow& row : kOptions) defaults[row.name] = row.default_text;
  const Options set = Read(defaults);
  for (const Options& options : {unset, set}) {
    EXPECT_TRUE(options.enable);
    EXPECT_EQ(options.directory, nullptr);
    EXPECT_EQ(options.kernel_timing, KernelTiming::kAuto);
    EXPECT_EQ(options.communicators, 256u);
    EXPECT_EQ(options.retention_ns, 300'000'000'000u);
    EXPECT_EQ(options.rejected_name, nullptr);
  }
}

TEST(Options, TakeEveryVariableOfTheTable) {
  const Options options = Read({{"NCCL_EXPORTER_ENABLE", "0"},
                                {"NCCL_EXPORTER_DIR", "/somewhere"},
                                {"NCCL_EXPORTER_KERNEL_TIMING", "off"},
                                {"NCCL_EXPORTER_COMMUNICATORS", "4095"},
                                {"NCCL_EXPORTER_RETENTION_SECONDS", "1"}});
  EXPECT_FALSE(options.enable);
  EXPECT_STREQ(options.directory, "/somewhere");
  EXPECT_EQ(options.kernel_timing, KernelTiming::kOff);
  EXPECT_EQ(options.communicators, 4095u);
  EXPECT_EQ(options.retention_ns, 1'000'000'000u);
  EXPECT_EQ(options.rejected_name, nullptr);
}

TEST(Options, KeepTheDefaultAndNameTheVariableWhenAValueIsNotUnderstood) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"NCCL_EXPORTER_ENABLE", "yes"},
                                                                      {"NCCL_EXPORTER_KERNEL_TIMING", "sometimes"},
                                                                      {"NCCL_EXPORTER_COMMUNICATORS", "4096"},
                                                                      {"NCCL_EXPORTER_RETENTION_SECONDS", "-1"}}) {
    const Options options = Read({{name, value}});
    ASSERT_NE(options.rejected_name, nullptr) << name;
    EXPECT_EQ(options.rejected_name, name);
    EXPECT_TRUE(options.enable);
    EXPECT_EQ(options.kernel_timing, KernelTiming::kAuto);
    EXPECT_EQ(options.communicators, 256u);
    EXPECT_EQ(options.retention_ns, 300'000'000'000u);
  }
  for (const char* number : {"0", "12x", "", " 5", "99999999999999999999", "0x10"}) {
    EXPECT_EQ(Read({{"NCCL_EXPORTER_COMMUNICATORS", number}}).communicators, 256u) << number;
  }
}

}  // namespace
}  // namespace nccl_exporter
