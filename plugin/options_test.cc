// SPDX-License-Identifier: Apache-2.0
#include "plugin/options.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>
#include <vector>

#include "plugin/testing/hand_made_environment.h"

namespace nccl_exporter::plugin {
namespace {

Options Read(std::map<std::string, std::string> variables) {
  HandMadeEnvironment::Set(std::move(variables));
  return ReadOptions(HandMadeEnvironment::Get);
}

using Names = std::vector<std::string>;

Names Rejected(const Options& options) {
  Names names;
  for (const char* name : options.rejected) {
    if (name == nullptr) break;
    names.push_back(name);
  }
  return names;
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
    EXPECT_EQ(options.network_share_ppm, 100'000u);
    EXPECT_EQ(options.network_period_ns, 2'000'000'000u);
    EXPECT_EQ(options.labels, nullptr);
    EXPECT_EQ(Rejected(options), Names());
  }
}

TEST(Options, TakeEveryVariableOfTheTable) {
  const Options options = Read({{"NCCL_EXPORTER_ENABLE", "0"},
                                {"NCCL_EXPORTER_DIR", "/somewhere"},
                                {"NCCL_EXPORTER_KERNEL_TIMING", "off"},
                                {"NCCL_EXPORTER_COMMUNICATORS", "4095"},
                                {"NCCL_EXPORTER_RETENTION_SECONDS", "1"},
                                {"NCCL_EXPORTER_NETWORK_TIMING", "0.02/0.5"},
                                {"NCCL_EXPORTER_LABELS", "team=x,run=y"}});
  EXPECT_STREQ(options.labels, "team=x,run=y");
  EXPECT_FALSE(options.enable);
  EXPECT_STREQ(options.directory, "/somewhere");
  EXPECT_EQ(options.kernel_timing, KernelTiming::kOff);
  EXPECT_EQ(options.communicators, 4095u);
  EXPECT_EQ(options.retention_ns, 1'000'000'000u);
  EXPECT_EQ(options.network_share_ppm, 20'000u);
  EXPECT_EQ(options.network_period_ns, 500'000'000u);
  EXPECT_EQ(Rejected(options), Names());
}

TEST(Options, KeepTheDefaultAndNameTheVariableWhenAValueIsNotUnderstood) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"NCCL_EXPORTER_ENABLE", "yes"},
                                          {"NCCL_EXPORTER_KERNEL_TIMING", "sometimes"},
                                          {"NCCL_EXPORTER_COMMUNICATORS", "4096"},
                                          {"NCCL_EXPORTER_RETENTION_SECONDS", "-1"},
                                          {"NCCL_EXPORTER_NETWORK_TIMING", "0.0009"},
                                          {"NCCL_EXPORTER_LABELS", "rank=7"}}) {
    const Options options = Read({{name, value}});
    EXPECT_EQ(Rejected(options), Names{name});
    EXPECT_TRUE(options.enable);
    EXPECT_EQ(options.kernel_timing, KernelTiming::kAuto);
    EXPECT_EQ(options.communicators, 256u);
    EXPECT_EQ(options.retention_ns, 300'000'000'000u);
  }
  for (const char* share :
       {"0", "0.0001", ".", "1..", "0,5", "-1", "0.1 ", "0.1234567", "1000000000000000", "1.01",
        "/", "0.2/", "/2", "0.2/0", "0.2/0.09", "0.2/3601", "0.2/1e3", "0.2/2/2", "always/2"}) {
    const Options options = Read({{"NCCL_EXPORTER_NETWORK_TIMING", share}});
    EXPECT_EQ(options.network_share_ppm, 100'000u) << share;
    EXPECT_EQ(options.network_period_ns, 2'000'000'000u) << share;
  }
  EXPECT_EQ(Read({{"NCCL_EXPORTER_NETWORK_TIMING", "1"}}).network_share_ppm, 1'000'000u);
  for (const char* number : {"0", "12x", "", " 5", "99999999999999999999", "0x10"}) {
    EXPECT_EQ(Read({{"NCCL_EXPORTER_COMMUNICATORS", number}}).communicators, 256u) << number;
  }
}

TEST(Options, HaveTheRangesThatTheirHelpNames) {
  const std::regex range("([0-9.]+) to ([0-9]+)");
  int ranges = 0;
  for (const OptionRow& row : kOptions) {
    std::cmatch found;
    if (!std::regex_search(row.help, found, range)) continue;
    ++ranges;
    EXPECT_EQ(Rejected(Read({{row.name, found.str(1)}})), Names()) << row.name;
    EXPECT_EQ(Rejected(Read({{row.name, found.str(2)}})), Names()) << row.name;
    EXPECT_EQ(Rejected(Read({{row.name, std::to_string(std::stoi(found.str(2)) + 1)}})),
              Names{row.name});
    if (found.str(1) != "0") {
      EXPECT_EQ(Rejected(Read({{row.name, "0"}})), Names{row.name});
    }
  }
  EXPECT_EQ(ranges, 4);
}

TEST(Options, TakeWordsForTheShareOfNetworkTiming) {
  EXPECT_EQ(Read({{"NCCL_EXPORTER_NETWORK_TIMING", "always"}}).network_share_ppm, 1'000'000u);
  EXPECT_EQ(Read({{"NCCL_EXPORTER_NETWORK_TIMING", "off"}}).network_share_ppm, 0u);
  EXPECT_EQ(Read({{"NCCL_EXPORTER_NETWORK_TIMING", "auto"}}).network_share_ppm, 100'000u);
  EXPECT_EQ(Read({{"NCCL_EXPORTER_NETWORK_TIMING", "on"}}).network_share_ppm, 100'000u);
}

TEST(Options, NameEveryVariableWhoseValueIsNotUnderstood) {
  const Options options = Read({{"NCCL_EXPORTER_KERNEL_TIMING", "never"},
                                {"NCCL_EXPORTER_COMMUNICATORS", "many"},
                                {"NCCL_EXPORTER_RETENTION_SECONDS", "60"}});
  EXPECT_EQ(Rejected(options),
            (Names{"NCCL_EXPORTER_KERNEL_TIMING", "NCCL_EXPORTER_COMMUNICATORS"}));
  EXPECT_EQ(options.retention_ns, 60'000'000'000u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
