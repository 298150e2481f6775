// SPDX-License-Identifier: Apache-2.0
// ExtensionLibrary: the objects that it refuses, and what the header promises of its calls.
#include "exporter/extension/extension_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

class ExtensionLibraryTest : public testing::Test {
 protected:
  std::unique_ptr<ExtensionLibrary> Load(const std::string& name,
                                         std::map<std::string, std::string> settings = {}) {
    return std::make_unique<ExtensionLibrary>(name, std::vector<std::string>{"one", "other"},
                                              std::move(settings),
                                              [this](bool is_error, const std::string& text) {
                                                said_.push_back((is_error ? "error: " : "") + text);
                                              });
  }
  static std::string Probe(int fault) {
    return "exporter/extension/testing/probe" + std::to_string(fault) + ".so";
  }

  std::vector<std::string> said_;
};

TEST_F(ExtensionLibraryTest, ObjectsThatAreNoneAreRefused) {
  const std::pair<std::string, std::string> faults[] = {
      {Probe(1), Probe(1) + " exports no nccl_exporter_extension_1"},
      {Probe(2), Probe(2) + " lacks its version or a function"},
      {Probe(3), Probe(3) + " lacks its version or a function"},
      {Probe(4), Probe(4) + " has no capability that is known"},
      {Probe(5), Probe(5) + " has no capability that is known"},
      {"none", "no libnccl-exporter-extension-none.so in one, other"}};
  for (const auto& [name, fault] : faults) {
    try {
      Load(name);
      ADD_FAILURE() << fault;
    } catch (const std::runtime_error& refusal) {
      EXPECT_EQ(refusal.what(), fault);
    }
  }
}

TEST_F(ExtensionLibraryTest, DestroyComesAlsoAfterACreateThatFailed) {
  for (const char* const failing : {"none", "create"}) {
    said_.clear();
    auto extension = Load(Probe(0), {{"fail", failing}});
    EXPECT_EQ(extension->Create(), std::string("none") == failing);
    EXPECT_TRUE(said_.empty());
    extension.reset();
    EXPECT_EQ(said_, std::vector<std::string>{"destroyed"}) << failing;
  }
  Load(Probe(0));
  EXPECT_EQ(said_.size(), 1u) << "it was not created";
}

// The extension logs each promise of the header that its host does not keep.
TEST_F(ExtensionLibraryTest, BeyondTheLastAreNullZeroAndNan) {
  ExtensionSnapshot answer;
  answer.families = {{.name = "nccl_rank_info",
                      .help = "The rank.",
                      .type = MetricType::kGauge,
                      .samples = {{.labels = {{"pid", "7"}, {"rank", "0"}}, .value = 1}}}};
  answer.processes = {&answer.families[0].samples[0]};
  const auto extension = Load(Probe(0));
  ASSERT_TRUE(extension->Create());
  ExtensionRound round(answer);
  std::string failed;
  const ExtensionGifts gifts = extension->Take(answer, round, failed);
  EXPECT_EQ(failed, "");
  EXPECT_EQ(gifts.families.size(), 1u) << "compile() was called";
  EXPECT_THAT(said_, testing::IsEmpty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
