// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/extension_host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "exporter/exposition/encoder.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

class ExtensionHostTest : public testing::Test {
 protected:
  ExtensionHostTest() { std::filesystem::remove_all(labels_); }

  void Make(const std::string& name, const std::string& labels) {
    std::vector<std::unique_ptr<ExtensionLibrary>> extensions;
    extensions.push_back(std::make_unique<ExtensionLibrary>(
        name, std::vector<std::string>{"extension"},
        std::map<std::string, std::string>{{"file", table_}}, [](bool, const std::string&) {}));
    ASSERT_TRUE(extensions[0]->Create());
    host_ = std::make_unique<ExtensionHost>(
        std::move(extensions), ExtensionPlaces{.labels_directory = labels, .output_directory = ""},
        [this](const std::string& line) { said_.push_back(line); });
  }
  // An answer with processes of these pids, all with one GPU.
  void See(const std::vector<std::string>& pids, int64_t seconds) {
    PlainFamily info{
        .name = "nccl_rank_info", .help = "", .type = MetricType::kGauge, .samples = {}};
    for (size_t i = 0; i < pids.size(); ++i)
      info.samples.push_back({.labels = {{"pid", pids[i]},
                                         {"uid", std::to_string(i)},
                                         {"gpu_uuid", "GPU-1"},
                                         {"nccl_job", "4711"}},
                              .value = 1});
    Exposition exposition;
    AddFamilies({info}, exposition);
    std::string answer;
    EncodeProtobuf(exposition, answer);
    EXPECT_TRUE(host_->See(answer, seconds * kSecondNs));
  }
  std::string Written(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(labels_ + "/" + name).rdbuf();
    return text.str();
  }

  const std::string labels_ = testing::TempDir() + "/host-labels";
  const std::string table_ = testing::TempDir() + "/host-table.csv";
  std::vector<std::string> said_;
  std::unique_ptr<ExtensionHost> host_;
};

TEST_F(ExtensionHostTest, SaysWhatItGivesAtMostOnceAMinute) {
  std::ofstream(table_) << "nccl_job,team\n4711,speech\n";
  Make("site-labels", labels_);
  for (const int64_t second : {1000, 1015, 1030}) See({"1", "2"}, second);
  const std::string two = "extension site-labels: labels of 2 processes, 0 families, 0 files";
  EXPECT_EQ(said_, std::vector<std::string>{two});
  See({"1", "2", "3"}, 1045);
  See({"1", "2"}, 1059);
  EXPECT_EQ(said_.size(), 1u) << "a minute has not passed";
  for (const int64_t second : {1075, 1300}) See({"1", "2", "3"}, second);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[1], "extension site-labels: labels of 3 processes, 0 families, 0 files");
  See({}, 900);
  EXPECT_EQ(said_.size(), 3u) << "the clock was set back";
}

TEST_F(ExtensionHostTest, NamesWhatIsRefusedOnce) {
  const std::string path = testing::TempDir() + "/libnccl-exporter-extension-broken.so";
  std::filesystem::copy_file("exporter/extension/testing/broken7.so", path,
                             std::filesystem::copy_options::overwrite_existing);
  Make(path, labels_);
  See({"1", "2"}, 1000);
  See({}, 1015);
  See({"1", "2"}, 1030);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[0], "extension broken: label \"rank\": reserved");
}

// A file that has a "match" twice is refused whole by the daemon.
TEST_F(ExtensionHostTest, WritesOneRuleForProcessesThatLabelsCannotTellApart) {
  std::ofstream(table_) << "nccl_job,team\n4711,speech\n";
  Make("site-labels", labels_);
  See({"7", "7"}, 1000);
  EXPECT_EQ(Written("extension-site-labels.json"),
            R"([{"labels":{"team":"speech"},"match":{"gpu_uuid":"GPU-1","pid":"7"}}])");
}

// Each answer said it.
TEST_F(ExtensionHostTest, SaysOnceThatLabelsAreNotWritten) {
  std::ofstream(table_) << "nccl_job,team\n4711,speech\n";
  Make("site-labels", labels_ + "/missing/folder");
  for (const int64_t second : {1000, 1015, 1030}) See({"1"}, second);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[1], "extension site-labels: its labels are not written: " + labels_ +
                          "/missing/folder/.extension-site-labels: No such file or directory");
}

}  // namespace
}  // namespace nccl_exporter::exporter
