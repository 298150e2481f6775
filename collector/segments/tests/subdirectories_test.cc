// SPDX-License-Identifier: Apache-2.0
// Subdirectories of a shared directory: one for each pod, container or job.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "collector/segments/segment_table.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/table_of_users_fixture.h"

namespace nccl_exporter::collector {
namespace {

using std::chrono::seconds;

class SubdirectoriesTest : public TableOfUsersFixture {
 protected:
  void MakeDirectory(const std::string& name, uint64_t uid) {
    std::filesystem::create_directory(Path(name));
    Give(name, uid);
  }
  void MakeSegment(const std::string& name, uint64_t uid) {
    SegmentWith(1).WriteTo(Path(name));
    Give(name, uid);
  }
  mode_t ModeOf(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(::stat(Path(name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  void SetDirectoryAge(const std::string& name, std::chrono::seconds age) {
    now_ = Now();
    const timespec then{.tv_sec = now_.realtime_ns / 1'000'000'000 - age.count(), .tv_nsec = 0};
    const timespec times[2]{then, then};
    EXPECT_EQ(::utimensat(AT_FDCWD, Path(name).c_str(), times, 0), 0);
  }
};

// Regression: only files in the directory itself were found, so that all pods had to share it, and
// any of them could truncate another's segment.
TEST_F(SubdirectoriesTest, AreFollowedOneLevelDeep) {
  MakeDirectory("pod-a", 0);
  MakeDirectory("4711", kSmallUser);
  MakeDirectory("pod-a/deeper", 0);
  MakeDirectory(".hidden", 0);
  MakeSegment("pod-a/x.seg", kBigUser);
  MakeSegment("pod-a/y.seg", kSmallUser);
  MakeSegment("4711/x.seg", kSmallUser);
  MakeSegment("pod-a/deeper/x.seg", kBigUser);
  MakeSegment(".hidden/x.seg", kBigUser);
  MakeSegment("x.seg", kOtherUser);
  const LockHolder writer(Path("pod-a/x.seg"));
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.processes.size(), 4u);
  EXPECT_EQ(snapshot.segments.live, 1u);
  EXPECT_EQ(ProcessesOf(snapshot, kSmallUser), 2u);
  EXPECT_TRUE(snapshot.segment_troubles.empty());
  MakeDirectory("pod-b", 0);
  MakeSegment("pod-b/x.seg", kBigUser);
  EXPECT_EQ(ProcessesOf(Snapshot(), kBigUser), 2u) << "inotify tells of both";
}

TEST_F(SubdirectoriesTest, OfAUserHaveHisOwnFilesAlone) {
  MakeDirectory("his", kSmallUser);
  MakeSegment("his/x.seg", kSmallUser);
  MakeSegment("his/another.seg", kBigUser);
  std::filesystem::create_directory(Path("elsewhere.d"));
  std::filesystem::create_directory_symlink("/", Path("link"));
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(ProcessesOf(snapshot, kSmallUser), 1u);
  EXPECT_EQ(ProcessesOf(snapshot, kBigUser), 0u);
}

TEST_F(SubdirectoriesTest, KeepTheRulesOfRemovalAndAreForgotten) {
  MakeDirectory("pod", 0);
  MakeSegment("pod/x.seg", kBigUser);
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  Advance(kRetention + seconds(1));
  EXPECT_TRUE(Snapshot().processes.empty());
  EXPECT_FALSE(Exists("pod/x.seg"));
  EXPECT_TRUE(Exists("pod")) << "its pod may run";
  std::filesystem::remove(Path("pod"));
  Snapshot();
  MakeDirectory("pod", 0);
  MakeSegment("pod/y.seg", kBigUser);
  const LockHolder writer(Path("pod/y.seg"));
  Advance(kRescanInterval);
  EXPECT_EQ(Snapshot().segments.live, 1u);
}

TEST_F(SubdirectoriesTest, AreRemovedWhenTheyHaveBeenEmptyForADay) {
  MakeDirectory("old", kSmallUser);
  MakeDirectory("used", 0);
  std::ofstream{Path("used/file")};
  MakeDirectory("young", 0);
  SetDirectoryAge("old", kEmptyDirectoryAge + seconds(5));
  SetDirectoryAge("used", kEmptyDirectoryAge + seconds(5));
  SetDirectoryAge("young", kEmptyDirectoryAge - seconds(5));
  Snapshot();
  EXPECT_FALSE(Exists("old"));
  EXPECT_TRUE(Exists("used"));
  EXPECT_TRUE(Exists("young"));
}

// Kubelet makes them without it.
TEST_F(SubdirectoriesTest, OfRootGetTheStickyBit) {
  for (const char* name : {"pod", "his"}) {
    MakeDirectory(name, 0);
    std::filesystem::permissions(Path(name), std::filesystem::perms::all);
  }
  Give("his", kSmallUser);
  Snapshot();
  EXPECT_EQ(ModeOf("pod"), 01777u);
  EXPECT_EQ(ModeOf("his"), 0777u);
}

TEST_F(SubdirectoriesTest, OfAUserAreFollowedUpToALimitAndOthersHaveTheirRoom) {
  for (size_t i = 0; i < kMaxSubdirectoriesPerUser + 3; ++i) {
    const std::string name = "big-" + std::to_string(i);
    MakeDirectory(name, kBigUser);
    std::ofstream{Path(name + "/file")};
  }
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    const SegmentTrouble* const trouble =
        TroubleOf(snapshot, SegmentError::kTooManySegments, kBigUser);
    ASSERT_NE(trouble, nullptr);
    EXPECT_EQ(trouble->count, 1u);
    EXPECT_EQ(trouble->present, 1u);
    Advance(kRescanInterval);
  }
  MakeDirectory("pod", 0);
  MakeSegment("pod/x.seg", kBigUser);
  MakeDirectory("small", kSmallUser);
  MakeSegment("small/x.seg", kSmallUser);
  EXPECT_EQ(Snapshot().processes.size(), 2u);
}

// Regression: a prolog's directories of a thousand short jobs of one day, all empty, left no room
// for that of a job that runs, whether the daemon began before or after.
TEST_F(SubdirectoriesTest, ThatAreEmptyGiveWayToOneThatIsUsed) {
  for (size_t i = 0; i < kMaxSubdirectories + 5; ++i) MakeDirectory("job-" + std::to_string(i), 0);
  EXPECT_TRUE(Snapshot().segment_troubles.empty()) << "who has nothing lacks no room";
  MakeDirectory("a-pod", 0);
  MakeSegment("a-pod/x.seg", kSmallUser);
  MakeSegment("job-0/x.seg", kBigUser);
  MakeSegment("job-1028/x.seg", kBigUser);
  for (int i = 0; i < 3; ++i) {
    Advance(kRescanInterval);
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(ProcessesOf(snapshot, kSmallUser), 1u);
    EXPECT_EQ(ProcessesOf(snapshot, kBigUser), 2u);
    EXPECT_TRUE(snapshot.segment_troubles.empty());
  }
  SegmentTable after_restart({scratch_.path()}, kRetention);
  EXPECT_EQ(SnapshotOf(after_restart, now_).processes.size(), 3u);
}

TEST_F(SubdirectoriesTest, OfAUserThatAreEmptyGiveWayToHisOwnAlone) {
  for (size_t i = 0; i < kMaxSubdirectoriesPerUser; ++i)
    MakeDirectory("big-" + std::to_string(i), kBigUser);
  Snapshot();
  MakeDirectory("used", kBigUser);
  MakeSegment("used/x.seg", kBigUser);
  EXPECT_EQ(ProcessesOf(Snapshot(), kBigUser), 1u);
}

}  // namespace
}  // namespace nccl_exporter::collector
