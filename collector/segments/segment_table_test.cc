// SPDX-License-Identifier: Apache-2.0
// Finding segments: directories that come, go and change, and what lies in them that is no segment.
#include "collector/segments/segment_table.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "collector/testing/lock_holder.h"
#include "collector/testing/table_fixture.h"

namespace nccl_exporter {
namespace {

using SegmentTableTest = TableFixture;
using std::chrono::seconds;

// Two users may give two files of two directories one name.
TEST_F(SegmentTableTest, TellsProcessesApartByTheirFilesWhateverTheirNames) {
  std::filesystem::create_directory(Path("other"));
  SegmentWith(1, 1).WriteTo(Path("x.seg"));
  SegmentWith(2, 2).WriteTo(Path("other/x.seg"));
  SegmentTable table({scratch_.path(), Path("other")}, kRetention);
  const NodeSnapshot snapshot = table.Snapshot(now_);
  ASSERT_EQ(snapshot.processes.size(), 2u);
  EXPECT_EQ(snapshot.processes[0].segment, snapshot.processes[1].segment);
  EXPECT_NE(snapshot.processes[0].file, snapshot.processes[1].file);
}

TEST_F(SegmentTableTest, ServesLiveProcessesByStartTimeThenName) {
  SegmentWriterV1 writer = SegmentWith(1);
  writer.Put(ProcessV1{.pid = 3, .uid = ::getuid(), .start_realtime_ns = 20});
  writer.WriteTo(Path("a.seg"));
  writer.Put(ProcessV1{.pid = 2, .uid = ::getuid(), .start_realtime_ns = 10});
  writer.WriteTo(Path("c.seg"));
  writer.Put(ProcessV1{.pid = 1, .uid = ::getuid(), .start_realtime_ns = 10});
  writer.WriteTo(Path("b.seg"));
  const LockHolder a(Path("a.seg")), b(Path("b.seg")), c(Path("c.seg"));

  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.taken_realtime_ns, now_.realtime_ns);
  EXPECT_EQ(snapshot.segments.live, 3u);
  ASSERT_EQ(snapshot.processes.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(snapshot.processes[i].pid, i + 1);
    EXPECT_TRUE(snapshot.processes[i].is_alive);
  }
  EXPECT_EQ(snapshot.processes[0].segment, "b.seg");
}

TEST_F(SegmentTableTest, ReadsALiveSegmentAnewForEachSnapshot) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  const LockHolder writer(Path("x.seg"));
  EXPECT_EQ(OperationsOf(Snapshot().processes.at(0)), 1u);
  SegmentWith(2).WriteTo(Path("x.seg"));
  EXPECT_EQ(OperationsOf(Snapshot().processes.at(0)), 2u);
}

TEST_F(SegmentTableTest, CountsASegmentWithoutVersionAsStartingUntilItIsReady) {
  SegmentWriterV1(2).WriteTo(Path("x.seg"));
  const LockHolder writer(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.starting, 1u);
  EXPECT_TRUE(Snapshot().processes.empty());
  SegmentWith(1).WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.live, 1u);
  const auto errors = Snapshot().segment_errors;
  EXPECT_TRUE(std::ranges::all_of(errors, [](uint64_t count) { return count == 0; }));
}

TEST_F(SegmentTableTest, FindsADirectoryThatAppearsLater) {
  SegmentTable table({Path("later")}, kRetention);
  EXPECT_EQ(Count(table.Snapshot(now_), SegmentError::kDirectoryUnreadable), 0u);
  std::filesystem::create_directory(Path("later"));
  SegmentWith(1).WriteTo(Path("later/x.seg"));
  EXPECT_EQ(table.Snapshot(now_).processes.size(), 1u);
  SegmentWith(1).WriteTo(Path("later/y.seg"));
  EXPECT_EQ(table.Snapshot(now_).processes.size(), 2u);
}

TEST_F(SegmentTableTest, GoesOnWithADirectoryThatTookTheOldOnesPlace) {
  const std::string path = Path("segments");
  SegmentTable table({path}, kRetention);
  std::filesystem::create_directory(path);
  SegmentWith(1, 1).WriteTo(path + "/x.seg");
  EXPECT_EQ(table.Snapshot(now_).processes.size(), 1u);
  std::filesystem::rename(path, Path("old"));
  std::filesystem::create_directory(path);
  SegmentWith(1, 2).WriteTo(path + "/y.seg");
  const NodeSnapshot snapshot = table.Snapshot(now_);
  EXPECT_EQ(snapshot.processes.size(), 2u) << "the old one is served to its end";
}

TEST_F(SegmentTableTest, ServesEachFileOnceWhateverWaysLeadToIt) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::filesystem::create_hard_link(Path("x.seg"), Path("y.seg"));
  std::filesystem::create_directory_symlink(scratch_.path(), Path("link"));
  SegmentTable table({scratch_.path(), Path("link"), scratch_.path()}, kRetention);
  EXPECT_EQ(table.Snapshot(now_).processes.size(), 1u);
  Advance(kRescanInterval);
  EXPECT_EQ(table.Snapshot(now_).processes.size(), 1u);
}

TEST_F(SegmentTableTest, TakesAReplacedFileForANewSegmentAndServesTheOldOneToItsEnd) {
  SegmentWith(1, 1).WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  SegmentWith(2, 2).WriteTo(Path("y.tmp"));
  std::filesystem::rename(Path("y.tmp"), Path("x.seg"));
  EXPECT_EQ(Snapshot().processes.size(), 2u);
}

TEST_F(SegmentTableTest, ServesALivingProcessWhoseFileSomebodyTidiedAway) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  const LockHolder writer(Path("x.seg"));
  Snapshot();
  std::filesystem::remove(Path("x.seg"));
  Advance(kRescanInterval);
  EXPECT_EQ(Snapshot().segments.live, 1u);
}

TEST_F(SegmentTableTest, CountsAnUnreadableDirectoryWhenItBecomesSo) {
  const std::string path = Path("segments");
  std::ofstream(path) << "no directory";
  SegmentTable table({path, scratch_.path()}, kRetention);
  EXPECT_EQ(Count(table.Snapshot(now_), SegmentError::kDirectoryUnreadable), 1u);
  Advance(kRescanInterval);
  EXPECT_EQ(Count(table.Snapshot(now_), SegmentError::kDirectoryUnreadable), 1u);
  std::filesystem::remove(path);
  EXPECT_EQ(Count(table.Snapshot(now_), SegmentError::kDirectoryUnreadable), 1u);
  std::ofstream(path) << "no directory";
  EXPECT_EQ(Count(table.Snapshot(now_), SegmentError::kDirectoryUnreadable), 2u);
}

TEST_F(SegmentTableTest, CountsEachFileThatIsNoSegmentOnceAndAgainWhenItChanges) {
  std::filesystem::create_directory(Path("directory.seg"));
  std::filesystem::create_symlink("x", Path("link.seg"));
  ASSERT_EQ(::mkfifo(Path("fifo.seg").c_str(), 0600), 0);
  std::ofstream(Path("text.seg")) << "certainly no segment";
  SegmentWith(1).WriteTo(Path("good.seg"));
  for (int i = 0; i < 3; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(snapshot.processes.size(), 1u);
    EXPECT_EQ(snapshot.segments.unusable, 4u);
    EXPECT_EQ(Count(snapshot, SegmentError::kNotARegularFile), 3u);
    EXPECT_EQ(Count(snapshot, SegmentError::kBadMagic), 1u);
    Advance(kRescanInterval);
  }
  std::ofstream(Path("text.seg")) << "changed, and still no segment";
  EXPECT_EQ(Count(Snapshot(), SegmentError::kBadMagic), 2u);
  std::filesystem::remove(Path("text.seg"));
  std::filesystem::remove(Path("fifo.seg"));
  EXPECT_EQ(Snapshot().segments.unusable, 2u);
}

TEST_F(SegmentTableTest, ServesTheOthersWhenALiveSegmentIsTruncatedBetweenTwoScrapes) {
  SegmentWith(1, 1).WriteTo(Path("x.seg"));
  SegmentWith(1, 2).WriteTo(Path("y.seg"));
  const LockHolder x(Path("x.seg")), y(Path("y.seg"));
  EXPECT_EQ(Snapshot().processes.size(), 2u);
  ASSERT_EQ(::truncate(Path("x.seg").c_str(), 5000), 0);
  const NodeSnapshot snapshot = Snapshot();
  ASSERT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.processes[0].pid, 2u);
  EXPECT_EQ(snapshot.segments.unusable, 1u);
  EXPECT_EQ(Count(Snapshot(), SegmentError::kTruncated), 1u);
}

TEST_F(SegmentTableTest, TriesAgainToOpenWhatCouldNotBeOpened) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = SnapshotWithDescriptors(1);  // the directory can be opened, the file in it cannot
    EXPECT_TRUE(snapshot.processes.empty());
    EXPECT_EQ(snapshot.segments.unusable, 1u);
    EXPECT_EQ(Count(snapshot, SegmentError::kOpenFailed), 1u);
    Advance(kRescanInterval);
  }
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.segments.unusable, 0u);
}

// The test holds more descriptors than processes usually may; false if that cannot be had.
bool AllowDescriptors(rlim_t count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(count, limit.rlim_max));
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

// The same directory as several users see it: the files are given to them, which only root may do.
class SegmentTableOfUsersTest : public TableFixture {
 protected:
  static constexpr uint64_t kBigUser = 1001, kSmallUser = 1002, kOtherUser = 1003;

  void SetUp() override {
    if (!MayGive()) GTEST_SKIP() << "needs root, to give files to other users";
    if (!AllowDescriptors(kMaxSegments + 400)) GTEST_SKIP() << "the limit of descriptors is too low here";
    of_users_.emplace(std::vector<std::string>{scratch_.path()}, kRetention);
  }
  NodeSnapshot Snapshot() { return of_users_->Snapshot(now_); }
  bool MayGive() const {
    std::ofstream{Path("gift")};
    return ::chown(Path("gift").c_str(), kBigUser, static_cast<gid_t>(-1)) == 0;
  }
  void Give(const std::string& name, uint64_t uid) const {
    ASSERT_EQ(::lchown(Path(name).c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(-1)), 0);
  }
  // Published segments without communicators, of which the file system stores the header alone.
  void MakeSegments(uint64_t uid, size_t count) {
    SegmentWriterV1 writer(2);
    writer.Put(ProcessV1{.pid = uid});
    writer.Publish();
    const auto* const bytes = reinterpret_cast<const char*>(writer.bytes().data());
    for (size_t i = 0; i < count; ++i) {
      const std::string name = std::to_string(uid) + "-" + std::to_string(made_++) + ".seg";
      std::ofstream(Path(name), std::ios::binary).write(bytes, SegmentWriterV1::kHeaderBytes);
      std::filesystem::resize_file(Path(name), writer.bytes().size());
      Give(name, uid);
    }
  }
  void MakeEmpty(uint64_t uid, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const std::string name = std::to_string(uid) + "-" + std::to_string(made_++) + ".seg";
      std::ofstream{Path(name)};
      Give(name, uid);
    }
  }
  static size_t ProcessesOf(const NodeSnapshot& snapshot, uint64_t uid) {
    return static_cast<size_t>(std::ranges::count(snapshot.processes, uid, &ProcessSnapshot::uid));
  }
  static const SegmentTrouble* TroubleOf(const NodeSnapshot& snapshot, SegmentError error, uint64_t uid) {
    const auto is_it = [&](const SegmentTrouble& trouble) { return trouble.error == error && trouble.uid == uid; };
    const auto found = std::ranges::find_if(snapshot.segment_troubles, is_it);
    return found == snapshot.segment_troubles.end() ? nullptr : &*found;
  }
  static size_t OpenDescriptors() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }

  std::optional<SegmentTable> of_users_;  // made with the limit of descriptors that it needs
  size_t made_ = 0;
};

TEST_F(SegmentTableOfUsersTest, FollowsOnlySoManySegmentsOfAUserAndNamesHim) {
  MakeSegments(kBigUser, kMaxSegmentsPerUser + 2);
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(ProcessesOf(snapshot, kBigUser), kMaxSegmentsPerUser);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 1u);
    const SegmentTrouble* const trouble = TroubleOf(snapshot, SegmentError::kTooManySegments, kBigUser);
    ASSERT_NE(trouble, nullptr);
    EXPECT_EQ(trouble->count, 1u);
    EXPECT_EQ(trouble->present, 1u);
    EXPECT_TRUE(trouble->file.starts_with(scratch_.path() + "/1001-")) << trouble->file;
    Advance(kRescanInterval);
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) std::filesystem::remove(entry.path());
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
  write("c.seg", kMaxCommunicators / 4, kBigUser);  // any two have room, whatever the order of their inodes
  write("d.seg", kMaxCommunicators / 2 - 1, kSmallUser);
  const LockHolder a(Path("a.seg")), b(Path("b.seg")), c(Path("c.seg")), d(Path("d.seg"));
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(ProcessesOf(snapshot, kSmallUser), 1u);
    EXPECT_EQ(ProcessesOf(snapshot, kBigUser), 2u);
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
  EXPECT_TRUE(table.Snapshot(now_).processes.empty());
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
  const NodeSnapshot snapshot = table.Snapshot(now_);
  ASSERT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.processes[0].uid, kSmallUser);
  // Its owner puts a link in its place, to where the daemon may unlink.
  std::filesystem::rename(Path("private-1002"), Path("old"));
  std::filesystem::create_directory_symlink("elsewhere", Path("private-1002"));
  Advance(kRescanInterval + kRetention);
  EXPECT_TRUE(table.Snapshot(now_).processes.empty());
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
    const NodeSnapshot snapshot = table.Snapshot(now_);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 1u);
    ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].present, 1u);
    EXPECT_TRUE(snapshot.segment_troubles[0].file.starts_with(Path("private-2"))) << snapshot.segment_troubles[0].file;
    Advance(kPrivateDirectoriesInterval);
  }
}

// Regression: an empty file of a process that was killed before it locked it stayed for ever, for only its owner may
// open it.
TEST_F(SegmentTableOfUsersTest, UnlinksAnUnreadableEmptyFileThatNobodyEverLocked) {
  std::filesystem::permissions(scratch_.path(), std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  ASSERT_EQ(::chown(scratch_.path().c_str(), kOtherUser, static_cast<gid_t>(-1)), 0);
  std::ofstream{Path("x.seg")};
  std::filesystem::permissions(Path("x.seg"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
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

// Regression: names that are no segments' were not counted, so there was no rest after listing any number of them.
TEST_F(SegmentTableTest, RestsAfterListingManyNamesOfAnyKind) {
  for (int64_t i = 0; i < kNamesAtEase; ++i) std::ofstream{Path(std::to_string(i))};
  Snapshot();
  SegmentWith(1).WriteTo(Path("x.seg"));
  Advance(std::chrono::milliseconds(50));
  EXPECT_TRUE(Snapshot().processes.empty());
  Advance(std::chrono::milliseconds(200));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
}

// Regression: a directory was listed in one go, and scrapes and observation waited for it: 0.7 s for 200,000 names.
TEST_F(SegmentTableOfUsersTest, ServesOthersBetweenThePartsOfAListing) {
  SegmentWith(3).WriteTo(Path("small.seg"));
  Give("small.seg", kSmallUser);
  const LockHolder writer(Path("small.seg"));
  MakeSegments(kBigUser, kMaxSegmentsPerUser + 2);
  NodeSnapshot before = Snapshot();
  const int64_t names = 5 * kNamesPerPart;
  MakeEmpty(kBigUser, 100);
  for (int64_t i = 0; i < names; ++i) std::ofstream{Path(std::to_string(i))};
  Advance(kRescanInterval);
  int parts = 1;
  for (of_users_->Discover(now_); of_users_->IsDiscovering(); of_users_->DiscoverMore(now_), ++parts) {
    const NodeSnapshot between = of_users_->Read(of_users_->Look(now_), now_);
    ASSERT_EQ(ProcessesOf(between, kSmallUser), 1u);
    ASSERT_EQ(ProcessesOf(between, kBigUser), kMaxSegmentsPerUser);
    ASSERT_EQ(TroubleOf(between, SegmentError::kTooManySegments, kBigUser)->present, 1u);
    ASSERT_EQ(Count(between, SegmentError::kTooManySegments), 1u);
  }
  EXPECT_GE(parts, names / kNamesPerPart);
  const NodeSnapshot after = of_users_->Read(of_users_->Look(now_), now_);
  EXPECT_EQ(after.segments.starting, 100u);
  EXPECT_EQ(after.processes.size(), before.processes.size());
  EXPECT_EQ(TroubleOf(after, SegmentError::kTooManySegments, kBigUser)->present, 1u);
}

TEST_F(SegmentTableTest, OnePartOpensOnlySoManyFiles) {
  constexpr int64_t kAtMost = kNamesPerPart / kNamesPerOpen;
  for (int64_t i = 0; i < 3 * kAtMost; ++i) std::ofstream(Path(std::to_string(i) + ".seg")) << "certainly no segment";
  table_.Discover(now_);
  EXPECT_TRUE(table_.IsDiscovering());
  EXPECT_GT(table_.Read({}, now_).segments.unusable, static_cast<uint64_t>(kAtMost / 2));
  EXPECT_LE(table_.Read({}, now_).segments.unusable, static_cast<uint64_t>(kAtMost));
  EXPECT_EQ(Snapshot().segments.unusable, static_cast<uint64_t>(3 * kAtMost));
}

// Directories take turns.
TEST_F(SegmentTableTest, ALargeDirectoryKeepsNoOtherWaiting) {
  std::filesystem::create_directory(Path("large"));
  std::filesystem::create_directory(Path("small"));
  for (int64_t i = 0; i < 5 * kNamesPerPart; ++i) std::ofstream{Path("large/" + std::to_string(i))};
  SegmentWith(1).WriteTo(Path("small/x.seg"));
  SegmentTable table({Path("large"), Path("small")}, kRetention);
  table.Discover(now_);
  table.DiscoverMore(now_);
  EXPECT_TRUE(table.IsDiscovering());
  EXPECT_EQ(table.Read(table.Look(now_), now_).processes.size(), 1u);
}

// What changed while the directory must not be listed, or since its listing began, may be unknown.
TEST_F(SegmentTableTest, SaysUntilWhenAllFilesAreKnown) {
  EXPECT_EQ(table_.KnownUntil(now_), INT64_MIN);
  Snapshot();
  EXPECT_EQ(table_.KnownUntil(now_), now_.monotonic_ns);
  for (int64_t i = 0; i <= 2 * kNamesAtEase; ++i) std::ofstream{Path(std::to_string(i))};
  const Moment begun = now_;
  table_.Discover(now_);
  EXPECT_TRUE(table_.IsDiscovering());
  Advance(std::chrono::milliseconds(5));
  EXPECT_EQ(table_.KnownUntil(now_), begun.monotonic_ns);
  while (table_.IsDiscovering()) table_.DiscoverMore(now_);
  EXPECT_EQ(table_.KnownUntil(now_), now_.monotonic_ns) << "nothing has changed since it began";
  SegmentWith(1).WriteTo(Path("x.seg"));
  Advance(std::chrono::milliseconds(50));
  Snapshot();  // not listed: it rests
  EXPECT_EQ(table_.KnownUntil(now_), begun.monotonic_ns);
  Advance(kRescanInterval);
  EXPECT_EQ(Snapshot().processes.size(), 1u);
  EXPECT_EQ(table_.KnownUntil(now_), now_.monotonic_ns);
}

// Regression: what found no room was opened at each listing all the same.
TEST_F(SegmentTableTest, OpensNoMoreFilesOfAUserThanItCanRemember) {
  constexpr size_t kFiles = kMaxOpensPerUser + 500;
  for (size_t i = 0; i < kFiles; ++i) std::ofstream(Path(std::to_string(i) + ".seg")) << "x";
  const auto bytes_read = [] {
    std::ifstream file("/proc/self/io");
    std::string name;
    uint64_t bytes = 0;
    file >> name >> bytes;
    return bytes;
  };
  if (bytes_read() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  const uint64_t before = bytes_read();
  Snapshot();  // reads the one byte of each file that it opens
  const uint64_t opened = bytes_read() - before;
  EXPECT_GE(opened, kMaxOpensPerUser);
  EXPECT_LT(opened, kFiles);
  EXPECT_EQ(Count(Snapshot(), SegmentError::kTooManySegments), 1u);
  // The next time only as many as can still be remembered.
  Advance(kRescanInterval);
  const uint64_t before_again = bytes_read();
  Snapshot();
  EXPECT_LT(bytes_read() - before_again, kMaxSegmentsPerUser + 500);
}

TEST_F(SegmentTableTest, FindsSegmentsAmongMoreFilesThatAreNone) {
  for (size_t i = 0; i < kMaxSegments + 1; ++i) std::filesystem::create_symlink("x", Path(std::to_string(i) + ".seg"));
  EXPECT_EQ(Snapshot().segments.unusable, kMaxSegments + 1);
  SegmentWith(1).WriteTo(Path("x.seg"));
  EXPECT_EQ(Snapshot().processes.size(), 1u);
}

TEST_F(SegmentTableTest, ServesOnlySoManyCommunicators) {
  for (const char* name : {"a.seg", "b.seg"}) {
    SegmentWriterV1 writer(kMaxCommunicators / 2 + 2);
    writer.Put(ProcessV1{.uid = ::getuid()});
    for (size_t slot = 0; slot < kMaxCommunicators / 2 + 1; ++slot) writer.Put(slot, CommunicatorV1{});
    writer.Publish();
    writer.WriteTo(Path(name));
  }
  const LockHolder a(Path("a.seg")), b(Path("b.seg"));
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.segments.unusable, 1u);
  EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 1u);
}

}  // namespace
}  // namespace nccl_exporter
