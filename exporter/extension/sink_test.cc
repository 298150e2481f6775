// SPDX-License-Identifier: Apache-2.0
// Files of extensions: where their host writes them, which ones it keeps, and those of csv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/exposition/encoder.h"
#include "exporter/extension/extension_host.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;

constexpr int64_t kHour = 3600, kBegin = 1'700'000'000;  // 22:13:20 on 2023-11-14, UTC

class SinkTest : public testing::Test {
 protected:
  SinkTest() { std::filesystem::remove_all(folder_); }

  void Make(const std::string& name, std::map<std::string, std::string> settings = {}) {
    std::vector<std::unique_ptr<ExtensionLibrary>> extensions;
    extensions.push_back(
        std::make_unique<ExtensionLibrary>(name, std::vector<std::string>{"extension"},
                                           std::move(settings), [](bool, const std::string&) {}));
    ASSERT_TRUE(extensions[0]->Create());
    host_ = std::make_unique<ExtensionHost>(
        std::move(extensions),
        ExtensionPlaces{.labels_directory = "", .output_directory = folder_, .most_files = 2},
        [this](const std::string& line) { said_.push_back(line); });
  }
  // An answer of this time with one sample of these labels and values in each family.
  void See(int64_t seconds, const Labels& labels, double value) {
    std::vector<PlainFamily> families{
        {.name = "nccl_exporter_snapshot_timestamp_seconds",
         .help = "",
         .type = MetricType::kGauge,
         .samples = {{.labels = {}, .value = static_cast<double>(seconds)}}}};
    for (const char* const name : {"nccl_collective_bytes_total", "nccl_p2p_send_bytes_total",
                                   "nccl_rank_info", "nccl_stalled"})
      families.push_back({.name = name,
                          .help = "",
                          .type = std::string(name).ends_with("_total") ? MetricType::kCounter
                                                                        : MetricType::kGauge,
                          .samples = {{.labels = labels, .value = value}}});
    families.push_back({.name = "nccl_collective_duration_seconds",
                        .help = "",
                        .type = MetricType::kHistogram,
                        .samples = {{.labels = labels, .value = 1, .sum = 1}}});
    Exposition exposition;
    AddFamilies(families, exposition);
    std::string answer;
    EncodeProtobuf(exposition, answer);
    EXPECT_TRUE(host_->See(answer, seconds * 1'000'000'000));
  }
  std::vector<std::string> Files(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + '/' + name))
      files.push_back(entry.path().filename());
    std::ranges::sort(files);
    return files;
  }
  std::string Written(const std::string& file) const {
    std::stringstream text;
    text << std::ifstream(folder_ + '/' + file).rdbuf();
    return text.str();
  }

  const std::string folder_ = testing::TempDir() + "/sink";
  std::vector<std::string> said_;
  std::unique_ptr<ExtensionHost> host_;
};

TEST_F(SinkTest, CsvAppendsToTheFileOfTheHour) {
  Make("csv");
  See(kBegin, {{"comm_name", "world"}, {"rank", "0"}}, 12);
  See(kBegin + 15, {{"comm_name", "world"}, {"rank", "0"}}, 0.1);
  See(kBegin + kHour, {}, 1e300);
  EXPECT_THAT(Files("csv"), ElementsAre("nccl-2023-11-14-22.csv", "nccl-2023-11-14-23.csv"));
  EXPECT_EQ(Written("csv/nccl-2023-11-14-22.csv"),
            "1700000000000,nccl_collective_bytes_total,12,\"comm_name=world;rank=0\"\n"
            "1700000000000,nccl_p2p_send_bytes_total,12,\"comm_name=world;rank=0\"\n"
            "1700000015000,nccl_collective_bytes_total,0.10000000000000001,"
            "\"comm_name=world;rank=0\"\n"
            "1700000015000,nccl_p2p_send_bytes_total,0.10000000000000001,"
            "\"comm_name=world;rank=0\"\n");
  EXPECT_EQ(Written("csv/nccl-2023-11-14-23.csv"),
            "1700003600000,nccl_collective_bytes_total,1.0000000000000001e+300,\"\"\n"
            "1700003600000,nccl_p2p_send_bytes_total,1.0000000000000001e+300,\"\"\n");
  EXPECT_THAT(said_, ElementsAre("extension csv: labels of 0 processes, 0 families, 1 files"));
}

// A job chooses the names of its communicators.
TEST_F(SinkTest, CsvKeepsALineWhateverTheLabelsAre) {
  Make("csv", {{"families", "nccl_rank_info"}});
  See(kBegin, {{"comm_name", "a,\"b\" 'c'\\;rank=9"}, {"rank", "1"}}, 1);
  EXPECT_EQ(Written("csv/nccl-2023-11-14-22.csv"),
            "1700000000000,nccl_rank_info,1,"
            "\"comm_name=a,\"\"b\"\" 'c'\\\\\\;rank=9;rank=1\"\n");
  Labels labels;
  std::string all;
  for (int i = 10; i < 30; ++i) {
    labels.push_back({"l" + std::to_string(i), std::string(128, 'x')});
    all += (all.empty() ? "" : ";") + labels.back().name + '=' + labels.back().value;
  }
  See(kBegin + kHour, labels, 1);
  EXPECT_EQ(Written("csv/nccl-2023-11-14-23.csv"),
            "1700003600000,nccl_rank_info,1,\"" + all + "\"\n");
}

TEST_F(SinkTest, CsvWritesTheFamiliesOfItsSetting) {
  Make("csv", {{"families", "nccl_p2p_,,nccl_stall"}});
  See(kBegin, {}, 1);
  EXPECT_EQ(Written("csv/nccl-2023-11-14-22.csv"),
            "1700000000000,nccl_p2p_send_bytes_total,1,\"\"\n1700000000000,nccl_stalled,1,\"\"\n");
}

TEST_F(SinkTest, TheFilesWithTheFirstNamesGo) {
  Make("csv");
  for (int hour = 0; hour < 4; ++hour) See(kBegin + hour * kHour, {}, hour);
  EXPECT_THAT(Files("csv"), ElementsAre("nccl-2023-11-15-00.csv", "nccl-2023-11-15-01.csv"));
}

// Each answer said it, since another file of the same answer was written.
TEST_F(SinkTest, AFileThatIsNotWrittenIsSaidOnce) {
  std::filesystem::create_directories(folder_ + "/probe/a");
  Make("exporter/extension/testing/probe0.so", {{"files", "two"}});
  for (int answer = 0; answer < 3; ++answer) See(kBegin + answer, {{"pid", "7"}}, 1);
  EXPECT_EQ(Written("probe/b"), "222");
  EXPECT_EQ(std::ranges::count(said_, "extension probe: its file is not written: " + folder_ +
                                          "/probe/a: Is a directory"),
            1);
}

}  // namespace
}  // namespace nccl_exporter::exporter
