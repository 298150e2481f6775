// SPDX-License-Identifier: Apache-2.0
// Listing and unlinking, in real directories.
#include "collector/segment_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "collector/scratch_directory.h"

namespace nccl_exporter {
namespace {

class SegmentDirectoryTest : public testing::Test {
 protected:
  void MakeFile(const std::string& name) { std::ofstream(scratch_.File(name)) << "x"; }
  bool Exists(const std::string& name) { return std::filesystem::exists(scratch_.File(name)); }
  FileKey Key(const std::string& name) {
    struct stat status {};
    EXPECT_EQ(::lstat(scratch_.File(name).c_str(), &status), 0);
    return KeyOf(status);
  }

  ScratchDirectory scratch_;
  const SegmentDirectory directory_{scratch_.path()};
};

TEST_F(SegmentDirectoryTest, ListsOnlyNamesOfSegmentsWhateverIsBehindThem) {
  MakeFile("1.seg");
  MakeFile("2.seg.tmp");
  MakeFile("seg");
  std::filesystem::create_directory(scratch_.File("directory.seg"));
  std::set<std::string> names;
  size_t looked_at = 0;
  const auto listing = directory_.List(looked_at, [&](int, const std::string& name, const struct stat& status) {
    names.insert(name);
    EXPECT_EQ(S_ISDIR(status.st_mode), name == "directory.seg");
  });
  EXPECT_EQ(listing, SegmentDirectory::Listing::kComplete);
  EXPECT_EQ(names, (std::set<std::string>{"1.seg", "directory.seg"}));
  EXPECT_EQ(looked_at, 4u + 2u) << "with . and ..";
}

TEST_F(SegmentDirectoryTest, TellsAMissingDirectoryFromAnUnreadableOne) {
  const auto never = [](int, const std::string&, const struct stat&) { FAIL(); };
  size_t names = 0;
  EXPECT_EQ(SegmentDirectory(scratch_.File("missing")).List(names, never), SegmentDirectory::Listing::kMissing);
  MakeFile("file");
  EXPECT_EQ(SegmentDirectory(scratch_.File("file")).List(names, never), SegmentDirectory::Listing::kUnreadable);
}

TEST_F(SegmentDirectoryTest, UnlinksTheFileThatIsMeant) {
  MakeFile("1.seg");
  EXPECT_TRUE(directory_.Unlink("1.seg", Key("1.seg")));
  EXPECT_FALSE(Exists("1.seg"));
}

TEST_F(SegmentDirectoryTest, LeavesAFileThatHasTakenTheNameSince) {
  MakeFile("1.seg");
  MakeFile("2.seg");
  const FileKey old = Key("1.seg");
  std::filesystem::rename(scratch_.File("2.seg"), scratch_.File("1.seg"));
  EXPECT_TRUE(directory_.Unlink("1.seg", old));
  EXPECT_TRUE(Exists("1.seg"));
}

TEST_F(SegmentDirectoryTest, LeavesWhatIsNoRegularFile) {
  std::filesystem::create_symlink("target", scratch_.File("1.seg"));
  EXPECT_TRUE(directory_.Unlink("1.seg", Key("1.seg")));
  EXPECT_TRUE(std::filesystem::is_symlink(scratch_.File("1.seg")));
}

TEST_F(SegmentDirectoryTest, IsContentIfSomebodyElseWasFaster) {
  MakeFile("1.seg");
  const FileKey key = Key("1.seg");
  std::filesystem::remove(scratch_.File("1.seg"));
  EXPECT_TRUE(directory_.Unlink("1.seg", key));
  EXPECT_TRUE(SegmentDirectory(scratch_.File("missing")).Unlink("1.seg", key));
}

}  // namespace
}  // namespace nccl_exporter
