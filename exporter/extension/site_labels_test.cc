// SPDX-License-Identifier: Apache-2.0
// The shipped extension site-labels: which tables it takes, and what it says of the others.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "exporter/extension/extension_library.h"

namespace nccl_exporter::exporter {
namespace {

class SiteLabelsTest : public testing::Test {
 protected:
  SiteLabelsTest() {
    PlainFamily info{.name = "nccl_rank_info", .help = "", .samples = {}};
    for (const char* const job : {"4711", "4712"})
      info.samples.push_back({.labels = {{"nccl_job", job}}, .value = 1});
    answer_.families.push_back(std::move(info));
    for (const PlainSample& sample : answer_.families[0].samples)
      answer_.processes.push_back(&sample);
    std::filesystem::remove(path_);
  }
  // Renames a table into place.
  void Put(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  // Labels of the first process.
  std::map<std::string, std::string> Labels() {
    if (!extension_) {
      extension_ = std::make_unique<ExtensionLibrary>(
          "site-labels", std::vector<std::string>{"extension"},
          std::map<std::string, std::string>{{"file", path_}},
          [this](bool, const std::string& text) { said_.push_back(text); });
      EXPECT_TRUE(extension_->Create());
    }
    ExtensionRound round(answer_);
    std::string failed;
    ExtensionGifts gifts = extension_->Take(answer_, round, failed);
    EXPECT_EQ(failed, "");
    return gifts.labels[0];
  }
  std::string Team() { return Labels()["team"]; }

  const std::string path_ = testing::TempDir() + "/site-labels.csv";
  ExtensionSnapshot answer_;
  std::vector<std::string> said_;
  std::unique_ptr<ExtensionLibrary> extension_;
};

// A comma in quotes shifted the values behind it.
TEST_F(SiteLabelsTest, QuotesAreThoseOfRfc4180) {
  Put("nccl_job,\"team\",cost_center\r\n\r\n"
      "4712,,\"\"\r\n"
      "\"4711\",\"speech, \"\"audio\"\"\",c17");
  const std::map<std::string, std::string> labels{{"team", "speech, \"audio\""},
                                                  {"cost_center", "c17"}};
  EXPECT_EQ(Labels(), labels);
  EXPECT_TRUE(said_.empty());
}

TEST_F(SiteLabelsTest, AWrongTableIsSaidOnceAndTheLastOneStays) {
  const std::string head = "nccl_job,team\n4711,speech\n";
  const std::pair<std::string, std::string> wrong[] = {
      {head + "4712\n", "line 3 has another number of fields than in the first line"},
      {head + "4712,vision,c17\n", "line 3 has another number of fields than in the first line"},
      {head + ",vision\n", "line 3 has no key"},
      {head + "\n4712,vision\n4711,vision\n", "line 5 has a key for the second time"},
      {head + "4712,\"vision\n", "line 3 has a quote without its end"},
      {head + "4712,\"vision\" \n", "line 3 has a quote in the middle of a field"},
      {head + "4712,vis\"ion\"\n", "line 3 has a quote in the middle of a field"},
      {"nccl_job, team\n4711,x\n", "line 1 has a field that is no label's name"},
      {"nccl_job,\n4711,x\n", "line 1 has a field that is no label's name"},
      {"nccl_job,team,team\n4711,x,y\n", "line 1 has a name for the second time"},
      {"nccl_job\n4711\n", "line 1 has fewer than two names"},
      {"nccl_job,a,b,c,d,e,f,g,h,i\n", "line 1 has more than 9 fields"},
      {head + std::string(1, '\0'), "is no text"},
      {"\n\n", "is empty"}};
  for (const auto& [table, fault] : wrong) {
    Put(head);
    EXPECT_EQ(Team(), "speech");
    said_.clear();
    Put(table);
    for (int answer = 0; answer < 3; ++answer) EXPECT_EQ(Team(), "speech") << fault;
    EXPECT_EQ(said_, std::vector<std::string>{path_ + ": " + fault + "; the last table stays"});
  }
}

TEST_F(SiteLabelsTest, AMissingTableIsSaidOnce) {
  for (int answer = 0; answer < 3; ++answer) EXPECT_EQ(Team(), "");
  Put("nccl_job,team\n4711,speech\n");
  EXPECT_EQ(Team(), "speech");
  std::filesystem::remove(path_);
  for (int answer = 0; answer < 3; ++answer) EXPECT_EQ(Team(), "speech");
  const std::string missing = path_ + ": No such file or directory; ";
  const std::vector<std::string> said{missing + "there is no table",
                                      missing + "the last table stays"};
  EXPECT_EQ(said_, said);
}

TEST_F(SiteLabelsTest, AKeyThatNoProcessHasIsSaidOnceForATable) {
  for (const char* const team : {"speech", "vision"}) {
    Put(std::string("job_id,team\n4711,") + team + "\n");
    for (int answer = 0; answer < 3; ++answer) EXPECT_EQ(Team(), "");
  }
  EXPECT_EQ(said_, std::vector(2, path_ + ": no process has the label job_id, the table's key"));
  Put("nccl_job,team\n4713,speech\n");
  EXPECT_EQ(Team(), "");
  EXPECT_EQ(said_.size(), 2u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
