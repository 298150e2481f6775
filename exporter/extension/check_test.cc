// SPDX-License-Identifier: Apache-2.0
// The shipped extensions pass, and each broken one fails by its own reason.
#include "exporter/extension/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;

std::vector<CheckResult> Check(const std::string& name, const std::string& folder,
                               std::map<std::string, std::string> settings = {}) {
  return CheckExtension([&] {
    return std::make_unique<ExtensionLibrary>(name, std::vector<std::string>{folder}, settings,
                                              [](bool, const std::string&) {});
  });
}

TEST(CheckExtensionTest, TheShippedOnesPass) {
  const std::string table = testing::TempDir() + "/table.csv";
  std::ofstream(table) << "nccl_job,team\n4711,speech\n";
  for (const char* const name : {"csv", "example", "site-labels"}) {
    const auto results = Check(name, "extension", {{"file", table}});
    EXPECT_EQ(results.size(), 10u);
    for (const CheckResult& result : results) {
#ifdef NCCL_EXPORTER_ASAN  // it keeps what is freed for a while
      if (result.fault.starts_with("it grows by")) continue;
#endif
      EXPECT_EQ(result.fault, "") << name << result.test;
    }
  }
}

// Each of the other tests said the same.
TEST(CheckExtensionTest, ACreationThatFailsIsTheLastTest) {
  const auto results = Check("site-labels", "extension");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].fault, "create() refuses its configuration");
}

TEST(ClaimsOfTest, AreThoseOfTheFirstAnswerOrWhyThereAreNone) {
  const std::string table = testing::TempDir() + "/claims.csv";
  std::ofstream(table) << "nccl_job,team,queue\n4711,speech,long\n";
  const auto claims = [](const std::string& name, std::map<std::string, std::string> settings) {
    return ClaimsOf([&] {
      return std::make_unique<ExtensionLibrary>(name, std::vector<std::string>{"extension"},
                                                settings, [](bool, const std::string&) {});
    });
  };
  EXPECT_EQ(claims("csv", {}), "nothing");
  EXPECT_EQ(claims("example", {}), "family nccl_ext_example_processes, label parity");
  EXPECT_EQ(claims("site-labels", {{"file", table}}), "label queue, label team");
  for (const auto& [fail, fault] : {std::pair{"create", "create() refuses its configuration"},
                                    {"partition", "partition() fails"}}) {
    try {
      ADD_FAILURE() << claims("exporter/extension/testing/probe0.so", {{"fail", fail}});
    } catch (const std::runtime_error& refusal) {
      EXPECT_STREQ(refusal.what(), fault);
    }
  }
}

struct Broken {
  int number;
  const char* test;
  const char* fault;
};

class BrokenExtension : public testing::TestWithParam<Broken> {};

TEST_P(BrokenExtension, FailsByItsOwnReason) {
  const bool is_leak = GetParam().number == 11 || GetParam().number >= 14;
  if (is_leak && ::mallinfo2().uordblks == 0)
    GTEST_SKIP() << "a sanitizer has a malloc() of its own";
  const std::string folder = testing::TempDir() + "/broken" + std::to_string(GetParam().number);
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(
      "exporter/extension/testing/broken" + std::to_string(GetParam().number) + ".so",
      folder + "/libnccl-exporter-extension-broken.so",
      std::filesystem::copy_options::overwrite_existing);
  std::string all;
  for (const CheckResult& result : Check("broken", folder)) {
    if (!result.fault.empty()) all += result.test + ": " + result.fault + '\n';
  }
  EXPECT_THAT(all, HasSubstr(std::string(GetParam().test) + ": "));
  EXPECT_THAT(all, HasSubstr(GetParam().fault));
}

INSTANTIATE_TEST_SUITE_P(
    Each, BrokenExtension,
    testing::Values(Broken{1, "is loaded: file, object, major, size, name",
                           "ABI major 2, this host of 1"},
                    Broken{2, "is loaded: file, object, major, size, name", "a struct of 8 bytes"},
                    Broken{3, "is loaded: file, object, major, size, name", "names itself whole"},
                    Broken{4, "is created", "refuses its configuration"},
                    Broken{5, "an answer of 8 ranks", "family \"other\": not claimed"},
                    Broken{6, "an answer of 8 ranks", "family \"own\": more than 2,000"},
                    Broken{7, "an answer of 8 ranks", "label \"rank\": reserved"},
                    Broken{8, "an empty answer", "label \"own\": no such process"},
                    Broken{9, "an answer of 8 ranks", "s for an answer"},
                    Broken{10, "an empty answer", "it crashes"},
                    Broken{11, "memory of 200 answers", "MiB in 100 answers: 105"},
                    Broken{12, "the same answer twice", "something else"},
                    Broken{13, "claims that another has", "partition() fails"},
                    Broken{14, "memory of 200 answers", "answers: 1000"},
                    Broken{15, "1,100 creations", "creations: 100"}),
    [](const auto& test) { return std::to_string(test.param.number); });

}  // namespace
}  // namespace nccl_exporter::exporter
