// SPDX-License-Identifier: Apache-2.0
// Segments of several users: the room that each gets, and errors by user.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "collector/segments/segment_table.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/table_of_users_fixture.h"

namespace nccl_exporter::collector {
namespace {

using SegmentTableOfUsersTest = TableOfUsersFixture;
using std::chrono::seconds;

TEST_F(SegmentTableOfUsersTest, FollowsOnlySoManySegmentsOfAUserAndNamesHim) {
  MakeSegments(kBigUser, kMaxSegmentsPerUser + 2);
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(ProcessesOf(snapshot, kBigUser), kMaxSegmentsPerUser);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 1u);
    const SegmentTrouble* const trouble =
        TroubleOf(snapshot, SegmentError::kTooManySegments, kBigUser);
    ASSERT_NE(trouble, nullptr);
    EXPECT_EQ(trouble->count, 1u);
    EXPECT_EQ(trouble->present, 1u);
    EXPECT_TRUE(trouble->file.starts_with(scratch_.path() + "/1001-")) << trouble->file;
    Advance(kRescanInterval);
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
    std::filesystem::remove(entry.path());
  const NodeSnapshot tidied = Snapshot();
  const SegmentTrouble* const past = TroubleOf(tidied, SegmentError::kTooManySegments, kBigUser);
  ASSERT_NE(past, nullptr);
  EXPECT_EQ(past->count, 1u);
  EXPECT_EQ(past->present, 0u);
}

TEST_F(SegmentTableOfUsersTest, AUserWhoFillsTheDirectoryTakesNoRoomOfAnothers) {
  MakeEmpty(kBigUser, 200);
  MakeSegments(kBigUser, kMaxSegmentsPerUser);
  MakeSegments(kOtherUser, kMaxSegmentsPerUser);
  EXPECT_EQ(Snapshot().segments.exited, kMaxSegments);
  MakeSegments(kSmallUser, 2);
  SegmentWith(7).WriteTo(Path("live.seg"));
  Give("live.seg", kSmallUser);
  const LockHolder writer(Path("live.seg"));
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(ProcessesOf(snapshot, kSmallUser), 3u);
  EXPECT_EQ(snapshot.segments.live, 1u);
  EXPECT_EQ(snapshot.segments.live + snapshot.segments.exited, kMaxSegments);
  EXPECT_EQ(TroubleOf(snapshot, SegmentError::kTooManySegments, kSmallUser), nullptr);
}

TEST_F(SegmentTableOfUsersTest, OfOneUsersSegmentsThoseWhoseLockIsHeldComeFirst) {
  MakeSegments(kBigUser, kMaxSegmentsPerUser);
  Snapshot();
  SegmentWith(7).WriteTo(Path("live.seg"));
  Give("live.seg", kBigUser);
  const LockHolder writer(Path("live.seg"));
  EXPECT_EQ(Snapshot().segments.live, 1u);
}

TEST_F(SegmentTableOfUsersTest, KeepsNoDescriptorForWhatIsNoSegment) {
  Snapshot();
  const size_t before = OpenDescriptors();
  MakeEmpty(kBigUser, 50);
  for (int i = 0; i < 50; ++i) {
    const std::string name = "junk" + std::to_string(i) + ".seg";
    std::ofstream(Path(name)) << "certainly no segment";
    Give(name, kBigUser);
  }
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.segments.starting, 50u);
  EXPECT_EQ(snapshot.segments.unusable, 50u);
  EXPECT_EQ(OpenDescriptors(), before);
  const SegmentTrouble* const trouble = TroubleOf(snapshot, SegmentError::kBadMagic, kBigUser);
  ASSERT_NE(trouble, nullptr);
  EXPECT_EQ(trouble->count, 50u);
  EXPECT_EQ(trouble->present, 50u);
}

TEST_F(SegmentTableOfUsersTest, ServesOnlySoManyCommunicatorsOfAUserWhoHasMoreThanAnother) {
  const auto write = [&](const std::string& name, size_t communicators, uint64_t uid) {
    SegmentWriterV1 writer(communicators + 1);
    writer.Put(ProcessV1{.uid = uid});
    for (size_t slot = 0; slot < communicators; ++slot) writer.Put(slot, CommunicatorV1{});
    writer.Publish();
    writer.WriteTo(Path(name));
    Give(name, uid);
  };
  write("a.seg", kMaxCommunicators / 4, kBigUser);
  write("b.seg", kMaxCommunicators / 4, kBigUser);
  write("c.seg", kMaxCommunicators / 4, kBigUser);
  write("d.seg", kMaxCommunicators / 2 - 1, kSmallUser);
  const LockHolder a(Path("a.seg")), b(Path("b.seg")), c(Path("c.seg")), d(Path("d.seg"));
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(ProcessesOf(snapshot, kSmallUser), 1u);
    EXPECT_EQ(ProcessesOf(snapshot, kBigUser), 3u);
    for (const ProcessSnapshot& process : snapshot.processes)
      EXPECT_EQ(process.unread_in_use != 0, process.uid == kBigUser);
    EXPECT_NE(TroubleOf(snapshot, SegmentError::kTooManySegments, kBigUser), nullptr);
    EXPECT_EQ(TroubleOf(snapshot, SegmentError::kTooManySegments, kSmallUser), nullptr);
  }
}

TEST_F(SegmentTableOfUsersTest, CountsTheErrorsOfManyUsersTogether) {
  for (uint64_t uid = 2000; uid < 2000 + kMaxTroubledUsers + 5; ++uid) {
    const std::string name = std::to_string(uid) + ".seg";
    std::filesystem::create_symlink("x", Path(name));
    Give(name, uid);
  }
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.segment_troubles.size(), kMaxTroubledUsers + 1);
  EXPECT_EQ(snapshot.segment_troubles.front().uid, std::nullopt);
  EXPECT_EQ(snapshot.segment_troubles.front().count, 5u);
  EXPECT_EQ(snapshot.segment_troubles.front().present, 5u);
}

// Those that the plugin makes where there is no shared directory.
TEST_F(SegmentTableOfUsersTest, WatchesPrivateDirectoriesOfTheUsersThatTheirNamesSay) {
  const auto make = [&](const std::string& name, uint64_t uid) {
    std::filesystem::create_directory(Path(name));
    SegmentWith(1).WriteTo(Path(name + "/x.seg"));
    Give(name + "/x.seg", uid);
    Give(name, uid);
  };
  SegmentTable table({Path("private-*")}, kRetention);
  EXPECT_TRUE(SnapshotOf(table, now_).processes.empty());
  make("private-1002", kSmallUser);
  make("private-1001", kOtherUser);
  make("private-0x3eb", kOtherUser);
  make("private-01003", kOtherUser);
  make("private-1003", kOtherUser);
  std::filesystem::permissions(Path("private-1003"), std::filesystem::perms::all);
  make("elsewhere", kBigUser);
  std::filesystem::create_directory_symlink("elsewhere", Path("private-1004"));
  Give("private-1004", 1004);
  Advance(kPrivateDirectoriesInterval);
  const NodeSnapshot snapshot = SnapshotOf(table, now_);
  ASSERT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.processes[0].uid, kSmallUser);
  // Its owner puts a link in its place, to where the daemon may unlink.
  std::filesystem::rename(Path("private-1002"), Path("old"));
  std::filesystem::create_directory_symlink("elsewhere", Path("private-1002"));
  Advance(kRescanInterval + kRetention);
  EXPECT_TRUE(SnapshotOf(table, now_).processes.empty());
  EXPECT_TRUE(Exists("elsewhere/x.seg"));
}

// Regression: what has no room to be watched was left out in silence.
TEST_F(SegmentTableOfUsersTest, NamesThePrivateDirectoryThatFindsNoRoom) {
  for (size_t uid = 2000; uid < 2000 + kMaxPrivateDirectories + 1; ++uid) {
    std::filesystem::create_directory(Path("private-" + std::to_string(uid)));
    Give("private-" + std::to_string(uid), uid);
  }
  SegmentTable table({Path("private-*")}, kRetention);
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = SnapshotOf(table, now_);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 1u);
    ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].present, 1u);
    EXPECT_TRUE(snapshot.segment_troubles[0].file.starts_with(Path("private-2")))
        << snapshot.segment_troubles[0].file;
    Advance(kPrivateDirectoriesInterval);
  }
}

// Regression: an empty file of a process that was killed before it locked it stayed forever, for
// only its owner may open it.
TEST_F(SegmentTableOfUsersTest, UnlinksAnUnreadableEmptyFileThatNobodyEverLocked) {
  std::filesystem::permissions(scratch_.path(),
                               std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  ASSERT_EQ(::chown(scratch_.path().c_str(), kOtherUser, static_cast<gid_t>(-1)), 0);
  std::ofstream{Path("x.seg")};
  std::filesystem::permissions(
      Path("x.seg"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  Give("x.seg", kBigUser);
  ASSERT_EQ(::seteuid(kOtherUser), 0);
  const bool may_enter = ::access(scratch_.path().c_str(), X_OK) == 0;
  const uint64_t starting = Snapshot().segments.starting;
  Advance(kRetention - seconds(1));
  const uint64_t starting_before = Snapshot().segments.starting;
  Advance(seconds(5));
  const NodeSnapshot last = Snapshot();
  ASSERT_EQ(::seteuid(0), 0);
  if (!may_enter) GTEST_SKIP() << "other users cannot enter " << scratch_.path();
  EXPECT_EQ(starting, 1u);
  EXPECT_EQ(starting_before, 1u);
  EXPECT_EQ(last.segments.starting, 0u);
  EXPECT_FALSE(Exists("x.seg"));
}

}  // namespace
}  // namespace nccl_exporter::collector
