// SPDX-License-Identifier: Apache-2.0
// Listing and unlinking, in real directories.
#include "collector/segments/segment_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
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
  DirectoryNames opened;
  int64_t effort = 100;
  const auto listing =
      directory_.List(opened, effort, [&](int, const std::string& name, const struct stat& status) {
        names.insert(name);
        EXPECT_EQ(S_ISDIR(status.st_mode), name == "directory.seg");
      });
  EXPECT_EQ(listing, SegmentDirectory::Listing::kComplete);
  EXPECT_EQ(names, (std::set<std::string>{"1.seg", "directory.seg"}));
  EXPECT_EQ(effort, 100 - (4 + 2)) << "with . and ..";
}

TEST_F(SegmentDirectoryTest, TellsAMissingDirectoryFromAnUnreadableOne) {
  const auto never = [](int, const std::string&, const struct stat&) { FAIL(); };
  DirectoryNames names;
  int64_t effort = 1;
  EXPECT_EQ(SegmentDirectory(scratch_.File("missing")).List(names, effort, never),
            SegmentDirectory::Listing::kMissing);
  MakeFile("file");
  EXPECT_EQ(SegmentDirectory(scratch_.File("file")).List(names, effort, never),
            SegmentDirectory::Listing::kUnreadable);
}

TEST_F(SegmentDirectoryTest, GoesOnWhereItStoppedAndNamesEachOnceWhatStays) {
  for (int i = 0; i < 3000; ++i) MakeFile(std::to_string(i) + ".seg");
  std::multiset<std::string> seen;
  DirectoryNames names;
  const auto visit = [&](int, const std::string& name, const struct stat&) { seen.insert(name); };
  SegmentDirectory::Listing state{};
  for (int part = 0; part == 0 || state == SegmentDirectory::Listing::kPartial; ++part) {
    const size_t before = seen.size();
    int64_t effort = 100;
    state = directory_.List(names, effort, visit);
    EXPECT_LE(seen.size() - before, 100u);
    MakeFile("new" + std::to_string(part) + ".seg");
    std::filesystem::remove(scratch_.File(std::to_string(part) + ".seg"));
  }
  EXPECT_EQ(state, SegmentDirectory::Listing::kComplete);
  for (int i = 100; i < 3000; ++i) EXPECT_EQ(seen.count(std::to_string(i) + ".seg"), 1u) << i;
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
}  // namespace nccl_exporter::collector
