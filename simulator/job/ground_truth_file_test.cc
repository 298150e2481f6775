// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/ground_truth_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace nccl_exporter::sim {
namespace {

class TruthFile : public testing::Test {
 protected:
  TruthFile() {
    std::string name = testing::TempDir() + "ground_truth_file_test_XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~TruthFile() override { std::filesystem::remove_all(directory_); }

  std::string File(const std::string& name) const { return directory_ + "/" + name; }
  static nlohmann::json Read(const std::string& path) {
    return nlohmann::json::parse(std::ifstream(path));
  }

  const nlohmann::json document_{{"ranks", 2}};
  std::string directory_;
};

TEST_F(TruthFile, IsReplacedAsAWhole) {
  ASSERT_TRUE(WriteJson(File("truth"), {{"ranks", 1}}));
  ASSERT_TRUE(WriteJson(File("truth"), document_));
  EXPECT_EQ(Read(File("truth")), document_);
  EXPECT_FALSE(std::filesystem::exists(File("truth.part")));
}

// As it must a device: a rename over /dev/null, done by root, takes it from everybody.
TEST_F(TruthFile, LeavesAPipeAPipe) {
  ASSERT_EQ(mkfifo(File("pipe").c_str(), 0600), 0);
  const int pipe = open(File("pipe").c_str(), O_RDWR);
  ASSERT_GE(pipe, 0);
  EXPECT_TRUE(WriteJson(File("pipe"), document_));
  EXPECT_TRUE(std::filesystem::is_fifo(File("pipe")));
  char text[64] = {};
  EXPECT_GT(read(pipe, text, sizeof(text) - 1), 0);
  EXPECT_EQ(nlohmann::json::parse(text), document_);
  close(pipe);
}

TEST_F(TruthFile, LeavesALinkALink) {
  std::filesystem::create_symlink(File("target"), File("link"));
  EXPECT_TRUE(WriteJson(File("link"), document_));
  EXPECT_TRUE(std::filesystem::is_symlink(File("link")));
  EXPECT_EQ(Read(File("target")), document_);
}

TEST_F(TruthFile, SaysWhatCannotBeWritten) {
  EXPECT_FALSE(WriteJson(File("missing/truth"), document_));
  EXPECT_FALSE(WriteJson(directory_, document_));
}

}  // namespace
}  // namespace nccl_exporter::sim
