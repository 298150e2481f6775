// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/extension_host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "exporter/exposition/encoder.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
const std::string kProbe = "exporter/extension/testing/probe0.so";

class ExtensionHostTest : public testing::Test {
 protected:
  ExtensionHostTest() { std::filesystem::remove_all(labels_); }

  void Make(const std::string& name, const std::string& labels) { Make({name}, labels, {}); }
  void Make(const std::vector<std::string>& names, const std::string& labels,
            std::map<std::string, std::string> settings) {
    settings["file"] = table_;
    std::vector<std::unique_ptr<ExtensionLibrary>> extensions;
    for (const std::string& name : names) {
      extensions.push_back(std::make_unique<ExtensionLibrary>(
          name, std::vector<std::string>{"extension"}, settings, [](bool, const std::string&) {}));
      ASSERT_TRUE(extensions.back()->Create());
    }
    host_ = std::make_unique<ExtensionHost>(
        std::move(extensions), ExtensionPlaces{.labels_directory = labels, .output_directory = ""},
        [this](const std::string& line) { said_.push_back(line); });
  }
  struct Process {
    Process(const char* its_pid, const char* its_gpu = "GPU-1", const char* its_job = "4711")
        : pid(its_pid), gpu(its_gpu), job(its_job) {}
    std::string pid, gpu, job;
  };
  void See(const std::vector<Process>& processes, int64_t seconds) {
    PlainFamily info{
        .name = "nccl_rank_info", .help = "", .type = MetricType::kGauge, .samples = {}};
    for (size_t i = 0; i < processes.size(); ++i)
      info.samples.push_back({.labels = {{"pid", processes[i].pid},
                                         {"uid", std::to_string(i)},
                                         {"gpu_uuid", processes[i].gpu},
                                         {"nccl_job", processes[i].job}},
                              .value = 1});
    Exposition exposition;
    AddFamilies({info}, exposition);
    std::string answer;
    EncodeProtobuf(exposition, answer);
    EXPECT_TRUE(host_->See(answer, seconds * kSecondNs));
  }
  std::vector<std::string> Families() const {
    const auto families = ParseFamilies(*host_->Page());
    std::vector<std::string> names;
    for (size_t i = 0; families && i < families->size(); ++i) names.push_back((*families)[i].name);
    return names;
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

// They got no labels, or those of the other process, without a word.
TEST_F(ExtensionHostTest, SaysOnceThatLabelsOfSomeProcessesAreLeftOut) {
  std::ofstream(table_) << "nccl_job,team\n4711,speech\n4712,vision\n";
  Make("site-labels", labels_);
  const std::string left_out =
      "extension site-labels: no labels for processes without gpu_uuid, or with pid and "
      "gpu_uuid of others";
  const std::vector<Process> lost[] = {{{"2", ""}},
                                       {""},
                                       {"7", {"7", "GPU-1", "4712"}},
                                       {"7", {"7", "GPU-1", "4713"}},
                                       {{"7", "GPU-1", "4713"}, "7"}};
  for (std::vector<Process> processes : lost) {
    said_.clear();
    See({"1"}, 1000);
    processes.push_back("1");
    for (int answer = 0; answer < 3; ++answer) See(processes, 1000);
    EXPECT_EQ(Written("extension-site-labels.json"),
              R"([{"labels":{"team":"speech"},"match":{"gpu_uuid":"GPU-1","pid":"1"}}])");
    EXPECT_EQ(std::ranges::count(said_, left_out), 1);
  }
  said_.clear();
  See({"1", {"2", "", "4713"}, {"7", "GPU-2"}, {"7", "GPU-1", "4713"}}, 1000);
  EXPECT_EQ(std::ranges::count(said_, left_out), 0);
}

TEST_F(ExtensionHostTest, ACallThatFailsDropsItsGiftsAlone) {
  for (const std::string call : {"partition", "compile"}) {
    said_.clear();
    Make({kProbe, "example"}, labels_, {{"fail", call}});
    for (const int64_t second : {1000, 1015, 1030}) See({"1", "2"}, second);
    const std::vector<std::string> said{
        "extension probe: " + call + "() failed",
        "extension probe: labels of 0 processes, 0 families, 0 files",
        "extension example: labels of 2 processes, 1 families, 0 files"};
    EXPECT_EQ(said_, said);
    EXPECT_EQ(Families(), std::vector<std::string>{"nccl_ext_example_processes"});
    EXPECT_EQ(Written("extension-probe.json"), "[]");
    EXPECT_NE(Written("extension-example.json"), "[]");
  }
}

TEST_F(ExtensionHostTest, TheFirstOfTheListHasALabel) {
  const std::vector<std::string> names{"example", "probe"};
  for (const bool is_probe_first : {false, true}) {
    const std::vector<std::string> list{is_probe_first ? kProbe : "example",
                                        is_probe_first ? "example" : kProbe};
    Make(list, labels_, {{"label", "parity"}});
    See({"1"}, 1000);
    EXPECT_EQ(Families().size(), 2u);
    EXPECT_NE(Written("extension-" + names[is_probe_first] + ".json"), "[]");
    EXPECT_EQ(Written("extension-" + names[!is_probe_first] + ".json"), "[]");
  }
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
