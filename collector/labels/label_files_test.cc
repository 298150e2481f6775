// SPDX-License-Identifier: Apache-2.0
#include "collector/labels/label_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

class LabelFilesTest : public testing::Test {
 protected:
  LabelFilesTest() { std::filesystem::create_directory(directory_); }

  // Renames a file with `text` into place.
  void Put(const std::string& name, const std::string& text) {
    std::ofstream(scratch_.File("new")) << text;
    std::filesystem::rename(scratch_.File("new"), directory_ + "/" + name);
  }
  void PutTeam(const std::string& name, const std::string& team, int uid = 1000) {
    Put(name, R"({"match": {"uid": )" + std::to_string(uid) + R"(}, "labels": {"team": ")" + team +
                  "\"}}");
  }
  NodeSnapshot Look() {
    NodeSnapshot node;
    node.processes.resize(1);
    node.processes[0].uid = 1000;
    files_.AddTo(node);
    return node;
  }
  std::string Team() {
    const auto labels = Look().processes[0].site_labels;
    return labels.empty() ? "" : labels[0].second;
  }
  // Faults counted so far, those that are there now, and the words of the latest.
  void ExpectFaults(uint64_t count, uint64_t present, const std::string& detail) {
    const NodeSnapshot node = Look();
    EXPECT_EQ(node.segment_errors[static_cast<size_t>(SegmentError::kBadLabels)], count);
    ASSERT_FALSE(node.segment_troubles.empty());
    EXPECT_EQ(node.segment_troubles.back().present, present);
    EXPECT_THAT(node.segment_troubles.back().detail, testing::HasSubstr(detail));
  }

  ScratchDirectory scratch_;
  const std::string directory_ = scratch_.File("labels.d");
  LabelFiles files_{directory_};
};

TEST_F(LabelFilesTest, AFileIsReadWhenItComesChangesAndGoes) {
  EXPECT_EQ(Team(), "");
  PutTeam("a.json", "x");
  EXPECT_EQ(Team(), "x");
  PutTeam("a.json", "y");
  EXPECT_EQ(Team(), "y");
  std::filesystem::remove(directory_ + "/a.json");
  EXPECT_EQ(Team(), "");
  EXPECT_TRUE(Look().segment_troubles.empty());
}

TEST_F(LabelFilesTest, TheLaterNameWinsAndOtherNamesAreLeftAlone) {
  PutTeam("b.json", "b");
  PutTeam("a.json", "a");
  PutTeam(".c.json", "hidden");
  PutTeam("d.json.tmp", "unfinished");
  EXPECT_EQ(Team(), "b");
}

// A later rule replaced the whole rule of an earlier file.
TEST_F(LabelFilesTest, LabelsOfAllFilesReachAProcess) {
  const auto put = [this](const std::string& name, const std::string& labels) {
    Put(name, R"({"match": {"uid": 1000}, "labels": {)" + labels + "}}");
  };
  const auto labels = [this] { return Look().processes[0].site_labels; };
  put("extension-a.json", R"("team": "a", "rack": "r1")");
  put("extension-b.json", R"("team": "b", "cost_center": "c17")");
  EXPECT_THAT(labels(), UnorderedElementsAre(Pair("team", "b"), Pair("rack", "r1"),
                                             Pair("cost_center", "c17")));
  std::filesystem::remove(directory_ + "/extension-b.json");
  EXPECT_THAT(labels(), UnorderedElementsAre(Pair("team", "a"), Pair("rack", "r1")));
  std::string eight;
  for (char letter = 'a'; letter < 'i'; ++letter)
    eight += std::string(eight.empty() ? "" : ", ") + '"' + letter + R"(": "x")";
  put("extension-b.json", eight);
  EXPECT_THAT(labels(), testing::AllOf(testing::SizeIs(8), testing::Each(Pair(testing::_, "x"))));
}

TEST_F(LabelFilesTest, AWrongFileKeepsItsLabelsAndIsCountedOnce) {
  PutTeam("a.json", "x");
  EXPECT_EQ(Team(), "x");
  Put("a.json", "{");
  for (int look = 0; look < 3; ++look) ExpectFaults(1, 1, "is no JSON");
  EXPECT_EQ(Team(), "x");
  PutTeam("a.json", "y");
  EXPECT_EQ(Team(), "y");
  ExpectFaults(1, 0, "is no JSON");
}

TEST_F(LabelFilesTest, FilesThatOthersMayWriteAreRefused) {
  PutTeam("a.json", "x");
  std::filesystem::permissions(directory_ + "/a.json", std::filesystem::perms(0664));
  ExpectFaults(1, 1, "users other than its owner may write");
  EXPECT_EQ(Team(), "");
  std::filesystem::permissions(directory_ + "/a.json", std::filesystem::perms(0644));
  EXPECT_EQ(Team(), "x");
  std::filesystem::permissions(directory_, std::filesystem::perms(0777));
  PutTeam("a.json", "y");
  ExpectFaults(2, 1, "users other than its owner may write");
  EXPECT_EQ(Team(), "x");
  std::filesystem::permissions(directory_, std::filesystem::perms(0755));
  EXPECT_EQ(Team(), "y");
}

TEST_F(LabelFilesTest, FilesAndDirectoriesOfOtherUsersAreRefused) {
  constexpr uid_t kOther = 54321;
  const std::string file = directory_ + "/a.json";
  PutTeam("a.json", "x");
  EXPECT_EQ(Team(), "x");
  if (::chown(file.c_str(), kOther, kOther) != 0)
    GTEST_SKIP() << "needs root, to give files to other users";
  ExpectFaults(1, 1, "belongs to user 54321");
  EXPECT_EQ(Team(), "x");
  PutTeam("a.json", "y");
  EXPECT_EQ(Team(), "y");
  ASSERT_EQ(::chown(directory_.c_str(), kOther, kOther), 0);
  PutTeam("a.json", "z");
  for (int look = 0; look < 3; ++look) ExpectFaults(2, 1, "belongs to user 54321");
  EXPECT_EQ(Team(), "y");
  ASSERT_EQ(::chown(directory_.c_str(), ::geteuid(), ::getegid()), 0);
  EXPECT_EQ(Team(), "z");
}

TEST_F(LabelFilesTest, WhatIsNoFileOrTooLongIsRefused) {
  ASSERT_EQ(::mkfifo((directory_ + "/a.json").c_str(), 0600), 0);
  ExpectFaults(1, 1, "is no regular file");
  Put("a.json", std::string(kLabelFileBytes + 1, ' '));
  ExpectFaults(2, 1, "more than 64 KiB");
  PutTeam("a.json", "x");
  EXPECT_EQ(Team(), "x");
}

TEST_F(LabelFilesTest, AFloodOfFilesAndAMissingDirectoryKeepWhatIsThere) {
  PutTeam("a.json", "x");
  EXPECT_EQ(Team(), "x");
  for (size_t i = 0; i < kMostLabelFiles; ++i) PutTeam("flood" + std::to_string(i) + ".json", "f");
  for (int look = 0; look < 3; ++look) ExpectFaults(1, 1, "more than 64 files");
  EXPECT_EQ(Team(), "x");
  std::filesystem::remove_all(directory_);
  ExpectFaults(2, 1, "No such file");
  EXPECT_EQ(Team(), "x");
}

// As Kubernetes mounts a ConfigMap.
TEST_F(LabelFilesTest, LinksOfTheDirectorysOwnerAreFollowed) {
  std::filesystem::create_directory(directory_ + "/..1");
  PutTeam("..1/a.json", "x");
  std::filesystem::create_symlink("..1", directory_ + "/..data");
  std::filesystem::create_symlink("..data/a.json", directory_ + "/a.json");
  EXPECT_EQ(Team(), "x");
  std::filesystem::create_directory(directory_ + "/..2");
  PutTeam("..2/a.json", "yy");
  std::filesystem::create_symlink("..2", directory_ + "/..new");
  std::filesystem::rename(directory_ + "/..new", directory_ + "/..data");
  EXPECT_EQ(Team(), "yy");
}

}  // namespace
}  // namespace nccl_exporter::collector
