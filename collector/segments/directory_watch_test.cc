// SPDX-License-Identifier: Apache-2.0
// inotify, with real directories. Events are queued before the call that makes them returns, so
// that nothing here waits.
#include "collector/segments/directory_watch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

using Paths = std::set<std::string>;

class DirectoryWatchTest : public testing::Test {
 protected:
  DirectoryWatchTest() {
    std::filesystem::create_directory(a_);
    std::filesystem::create_directory(b_);
  }
  static void MakeFile(const std::string& path) { std::ofstream(path) << "x"; }

  ScratchDirectory scratch_;
  const std::string a_ = scratch_.File("a");
  const std::string b_ = scratch_.File("b");
  DirectoryWatch watch_;
};

TEST_F(DirectoryWatchTest, TellsWhichDirectoryChangedAndOnlyOnce) {
  ASSERT_TRUE(watch_.Watch(a_));
  ASSERT_TRUE(watch_.Watch(b_));
  EXPECT_EQ(watch_.TakeChanges(), Paths{});
  MakeFile(b_ + "/x.seg");
  EXPECT_EQ(watch_.TakeChanges(), Paths{b_});
  EXPECT_EQ(watch_.TakeChanges(), Paths{});
  std::filesystem::remove(b_ + "/x.seg");
  EXPECT_EQ(watch_.TakeChanges(), Paths{b_});
}

TEST_F(DirectoryWatchTest, CannotWatchWhatIsMissingOrNoDirectory) {
  EXPECT_FALSE(watch_.Watch(scratch_.File("missing")));
  MakeFile(scratch_.File("file"));
  EXPECT_FALSE(watch_.Watch(scratch_.File("file")));
}

TEST_F(DirectoryWatchTest, TellsThatADirectoryWasReplacedAndThenWatchesTheNewOne) {
  ASSERT_TRUE(watch_.Watch(a_));
  std::filesystem::rename(a_, scratch_.File("old"));
  std::filesystem::create_directory(a_);
  EXPECT_EQ(watch_.TakeChanges(), Paths{a_});
  ASSERT_TRUE(watch_.Watch(a_));
  watch_.TakeChanges();
  MakeFile(scratch_.File("old") + "/x.seg");
  EXPECT_EQ(watch_.TakeChanges(), Paths{});
  MakeFile(a_ + "/x.seg");
  EXPECT_EQ(watch_.TakeChanges(), Paths{a_});
}

TEST_F(DirectoryWatchTest, TellsBothPathsThatLeadToOneDirectory) {
  const std::string link = scratch_.File("link");
  std::filesystem::create_directory_symlink(a_, link);
  ASSERT_TRUE(watch_.Watch(a_));
  ASSERT_TRUE(watch_.Watch(link));
  MakeFile(a_ + "/x.seg");
  EXPECT_EQ(watch_.TakeChanges(), (Paths{a_, link}));
}

}  // namespace
}  // namespace nccl_exporter::collector
