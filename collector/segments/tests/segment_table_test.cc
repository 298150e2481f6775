// SPDX-License-Identifier: Apache-2.0
// Finding segments: directories that come, go and change, and what lies in them that is no segment.
#include "collector/segments/segment_table.h"

#include <filesystem>
#include <fstream>

#include "collector/testing/lock_holder.h"
#include "collector/testing/table_fixture.h"

namespace nccl_exporter::collector {
namespace {

using SegmentTableTest = TableFixture;
using std::chrono::seconds;

// Two users may give two files of two directories one name.
TEST_F(SegmentTableTest, TellsProcessesApartByTheirFilesWhateverTheirNames) {
  std::filesystem::create_directory(Path("other"));
  SegmentWith(1, 1).WriteTo(Path("x.seg"));
  SegmentWith(2, 2).WriteTo(Path("other/x.seg"));
  SegmentTable table({scratch_.path(), Path("other")}, kRetention);
  const NodeSnapshot snapshot = SnapshotOf(table, now_);
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
  EXPECT_EQ(Count(SnapshotOf(table, now_), SegmentError::kDirectoryUnreadable), 0u);
  std::filesystem::create_directory(Path("later"));
  SegmentWith(1).WriteTo(Path("later/x.seg"));
  EXPECT_EQ(SnapshotOf(table, now_).processes.size(), 1u);
  SegmentWith(1).WriteTo(Path("later/y.seg"));
  EXPECT_EQ(SnapshotOf(table, now_).processes.size(), 2u);
}

TEST_F(SegmentTableTest, GoesOnWithADirectoryThatTookTheOldOnesPlace) {
  const std::string path = Path("segments");
  SegmentTable table({path}, kRetention);
  std::filesystem::create_directory(path);
  SegmentWith(1, 1).WriteTo(path + "/x.seg");
  EXPECT_EQ(SnapshotOf(table, now_).processes.size(), 1u);
  std::filesystem::rename(path, Path("old"));
  std::filesystem::create_directory(path);
  SegmentWith(1, 2).WriteTo(path + "/y.seg");
  const NodeSnapshot snapshot = SnapshotOf(table, now_);
  EXPECT_EQ(snapshot.processes.size(), 2u) << "the old one is served to its end";
}

TEST_F(SegmentTableTest, ServesEachFileOnceWhateverWaysLeadToIt) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  std::filesystem::create_hard_link(Path("x.seg"), Path("y.seg"));
  std::filesystem::create_directory_symlink(scratch_.path(), Path("link"));
  SegmentTable table({scratch_.path(), Path("link"), scratch_.path()}, kRetention);
  EXPECT_EQ(SnapshotOf(table, now_).processes.size(), 1u);
  Advance(kRescanInterval);
  EXPECT_EQ(SnapshotOf(table, now_).processes.size(), 1u);
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
  EXPECT_EQ(Count(SnapshotOf(table, now_), SegmentError::kDirectoryUnreadable), 1u);
  Advance(kRescanInterval);
  EXPECT_EQ(Count(SnapshotOf(table, now_), SegmentError::kDirectoryUnreadable), 1u);
  std::filesystem::remove(path);
  EXPECT_EQ(Count(SnapshotOf(table, now_), SegmentError::kDirectoryUnreadable), 1u);
  std::ofstream(path) << "no directory";
  EXPECT_EQ(Count(SnapshotOf(table, now_), SegmentError::kDirectoryUnreadable), 2u);
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

// Regression: a segment without a version was starting, also one that had been read.
class EmptiedSegmentTest : public TableFixture {
 protected:
  EmptiedSegmentTest() {
    SegmentWith(1).WriteTo(Path("x.seg"));
    bytes_ = std::filesystem::file_size(Path("x.seg"));
  }
  void Truncate(size_t bytes) {
    ASSERT_EQ(::truncate(Path("x.seg").c_str(), static_cast<off_t>(bytes)), 0);
  }
  void ExpectUnusable(const std::string& detail) {
    for (int scrape = 0; scrape < 3; ++scrape) {
      const NodeSnapshot snapshot = Snapshot();
      EXPECT_TRUE(snapshot.processes.empty());
      EXPECT_EQ(snapshot.segments.starting, 0u);
      EXPECT_EQ(snapshot.segments.unusable, 1u);
      ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
      const SegmentTrouble& trouble = snapshot.segment_troubles[0];
      EXPECT_EQ(trouble.error, SegmentError::kTruncated);
      EXPECT_EQ(trouble.detail, detail);
      EXPECT_EQ(trouble.count, 1u);
      EXPECT_EQ(trouble.present, 1u);
      Advance(seconds(2));
    }
  }

  uint64_t bytes_ = 0;
};

TEST_F(EmptiedSegmentTest, OfALivingProcessIsUnusableAtOnceUntilItIsWrittenAgain) {
  const LockHolder writer(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.live, 1u);
  Truncate(0);
  ExpectUnusable("the file was emptied");
  SegmentWith(2).WriteTo(Path("x.seg"));
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(OperationsOf(snapshot.processes.at(0)), 2u);
  EXPECT_EQ(snapshot.segment_troubles.at(0).present, 0u);
}

TEST_F(EmptiedSegmentTest, ThatHasItsSizeAgainIsUnusable) {
  const LockHolder writer(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.live, 1u);
  Truncate(0);
  Truncate(bytes_);
  ExpectUnusable("the header is zero");
}

TEST_F(EmptiedSegmentTest, OfAProcessThatDiedOfItIsUnusableThenUnlinked) {
  LockHolder writer(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.live, 1u);
  Truncate(0);
  writer.Kill();
  ExpectUnusable("the file was emptied");
  Advance(kRetention + seconds(2));
  EXPECT_EQ(Snapshot().segments.unusable, 0u);
  EXPECT_FALSE(Exists("x.seg"));
}

TEST_F(EmptiedSegmentTest, OfADeadProcessIsUnusable) {
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  Truncate(0);
  Truncate(bytes_);
  Advance(kLastStateInterval);
  ExpectUnusable("the header is zero");
}

// A daemon that is started again does not know that it had a header.
TEST_F(EmptiedSegmentTest, ThatIsMetWithoutAHeaderIsStartingForAMinute) {
  Truncate(0);
  Truncate(bytes_);
  const LockHolder writer(Path("x.seg"));
  EXPECT_EQ(Snapshot().segments.starting, 1u);
  Advance(kLongestStart);
  EXPECT_EQ(Snapshot().segments.starting, 1u);
  Advance(seconds(1));
  ExpectUnusable("no header after 60 s");
}

TEST_F(SegmentTableTest, TriesAgainToOpenWhatCouldNotBeOpened) {
  SegmentWith(1).WriteTo(Path("x.seg"));
  for (int i = 0; i < 2; ++i) {
    // The directory can be opened, the file in it cannot.
    const NodeSnapshot snapshot = SnapshotWithDescriptors(1);
    EXPECT_TRUE(snapshot.processes.empty());
    EXPECT_EQ(snapshot.segments.unusable, 1u);
    EXPECT_EQ(Count(snapshot, SegmentError::kOpenFailed), 1u);
    Advance(kRescanInterval);
  }
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.segments.unusable, 0u);
}

TEST_F(SegmentTableTest, ServesOnlySoManyCommunicators) {
  for (const char* name : {"a.seg", "b.seg"}) {
    SegmentWriterV1 writer(kMaxCommunicators / 2 + 2);
    writer.Put(ProcessV1{.uid = ::getuid()});
    for (size_t slot = 0; slot < kMaxCommunicators / 2 + 1; ++slot)
      writer.Put(slot, CommunicatorV1{});
    writer.Publish();
    writer.WriteTo(Path(name));
  }
  const LockHolder a(Path("a.seg")), b(Path("b.seg"));
  const NodeSnapshot snapshot = Snapshot();
  ASSERT_EQ(snapshot.processes.size(), 2u);
  for (const ProcessSnapshot& process : snapshot.processes) {
    EXPECT_EQ(process.communicators.size(), kMaxCommunicators / 2);
    EXPECT_EQ(process.unread_in_use, 1u);
  }
  EXPECT_EQ(snapshot.segments.live, 2u);
  EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 2u);
}

}  // namespace
}  // namespace nccl_exporter::collector
