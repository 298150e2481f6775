// SPDX-License-Identifier: Apache-2.0
// One user's communicators: what a snapshot holds of them, and what they cost to read, whatever his
// processes do.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "collector/testing/lock_holder.h"
#include "collector/testing/table_fixture.h"

namespace nccl_exporter::collector {
namespace {

using std::chrono::seconds;

class CommunicatorRoomTest : public TableFixture {
 protected:
  static SegmentWriterV1 SegmentOf(size_t communicators, const CommunicatorV1& each = {}) {
    SegmentWriterV1 writer(communicators + 1);
    writer.Put(ProcessV1{.uid = ::getuid()});
    for (size_t slot = 0; slot < communicators; ++slot) writer.Put(slot, each);
    writer.Publish();
    return writer;
  }
  void WriteLive(const SegmentWriterV1& writer, const std::string& name) {
    writer.WriteTo(Path(name));
    writers_.push_back(std::make_unique<LockHolder>(Path(name)));
  }
  static size_t CommunicatorsOf(const NodeSnapshot& snapshot) {
    size_t count = 0;
    for (const ProcessSnapshot& process : snapshot.processes) count += process.communicators.size();
    return count;
  }
  // What this process has read so far; 0 where the kernel does not tell.
  static uint64_t BytesRead() {
    std::ifstream file("/proc/self/io");
    std::string name;
    uint64_t bytes = 0;
    file >> name >> bytes;
    return bytes;
  }
  template <typename Act>
  static uint64_t BytesReadBy(const Act& act) {
    const uint64_t before = BytesRead();
    act();
    return BytesRead() - before;
  }

  std::vector<std::unique_ptr<LockHolder>> writers_;
};

// Regression: a process that had just died was read with its user's whole room, whatever the dead
// before it took.
TEST_F(CommunicatorRoomTest, ProcessesThatDieOneAfterAnotherTakeNoMoreRoomThanOthers) {
  const SegmentWriterV1 segment = SegmentOf(kMaxCommunicators / 2);
  for (int i = 0; i < 4; ++i) WriteLive(segment, std::to_string(i) + ".seg");
  for (const auto& writer : writers_) {
    writer->Kill();
    Advance(seconds(1));
    table_.Refresh(now_);
  }
  for (int i = 0; i < 2; ++i) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(CommunicatorsOf(snapshot), kMaxCommunicators);
    EXPECT_EQ(snapshot.segments.exited, 2u);
    EXPECT_EQ(snapshot.segments.unusable, 2u);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 2u);
    Advance(seconds(1));
  }
}

TEST_F(CommunicatorRoomTest, TheDeadComeAfterTheLiving) {
  WriteLive(SegmentOf(kMaxCommunicators / 2 + 1), "dead.seg");
  writers_[0]->Kill();
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  WriteLive(SegmentOf(kMaxCommunicators / 2), "live.seg");
  const NodeSnapshot crowded = Snapshot();
  EXPECT_EQ(crowded.segments.live, 1u);
  EXPECT_EQ(crowded.segments.exited, 0u);
  EXPECT_EQ(Count(crowded, SegmentError::kTooManySegments), 1u);
  ASSERT_EQ(crowded.segment_troubles.size(), 1u);
  EXPECT_EQ(crowded.segment_troubles[0].present, 1u);
  SegmentOf(1).WriteTo(Path("live.seg"));
  const NodeSnapshot roomy = Snapshot();
  EXPECT_EQ(roomy.segments.exited, 1u) << "its last counts are still there";
  EXPECT_EQ(roomy.segment_troubles[0].present, 0u);
}

// Regression: a segment with more communicators than there was room for was read, thrown away and
// cost nothing.
TEST_F(CommunicatorRoomTest, SegmentsThatAreTooLargeCostNoMoreThanOneThatIsServed) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  WriteLive(SegmentOf(kMaxCommunicators), "served.seg");
  const uint64_t served =
      BytesReadBy([&] { EXPECT_EQ(CommunicatorsOf(Snapshot()), kMaxCommunicators); });
  writers_.clear();
  Snapshot();  // notices the end
  Advance(kRetention + seconds(1));
  EXPECT_TRUE(Snapshot().processes.empty());
  const SegmentWriterV1 segment = SegmentOf(kMaxCommunicators + 1);
  for (int i = 0; i < 5; ++i) WriteLive(segment, std::to_string(i) + ".seg");
  EXPECT_LT(BytesReadBy([&] { EXPECT_TRUE(Snapshot().processes.empty()); }), served / 10);
}

TEST_F(CommunicatorRoomTest, SegmentsThatAreTooLargeTakeNoRoom) {
  for (int i = 0; i < 2; ++i)
    WriteLive(SegmentOf(kMaxCommunicators + 1), "large" + std::to_string(i) + ".seg");
  for (int i = 0; i < 2; ++i) WriteLive(SegmentOf(2), "small" + std::to_string(i) + ".seg");
  EXPECT_EQ(Snapshot().segments.live, 2u);
}

// Memory is what room bounds: one user's forged segment must not make the daemon hold more than
// honest jobs can.
class CommunicatorMemoryTest : public CommunicatorRoomTest {
 protected:
  static constexpr size_t kSlots = kMaxCommunicators / 2;
  static void PutFunctions(SegmentWriterV1& writer, size_t count) {
    for (size_t slot = 0; slot < kSlots; ++slot) {
      for (size_t function = 0; function < count; ++function)
        writer.Put(slot, function, FunctionV1{.operations = {1}});
    }
  }
  SegmentWriterV1 writer_ = SegmentOf(kSlots);
};

TEST_F(CommunicatorMemoryTest, AFewFunctionsTakeTheRoomOfOneCommunicator) {
  PutFunctions(writer_, 3);
  WriteLive(writer_, "x.seg");
  EXPECT_EQ(CommunicatorsOf(Snapshot()), kSlots);
}

TEST_F(CommunicatorMemoryTest, ManyFunctionsTakeTheRoomOfSeveral) {
  PutFunctions(writer_, kFunctionCount);
  WriteLive(writer_, "x.seg");
  EXPECT_EQ(Count(Snapshot(), SegmentError::kTooManySegments), 1u);
}

TEST_F(CommunicatorMemoryTest, ManyOperationsInFlightTakeTheRoomOfSeveral) {
  PutFunctions(writer_, 3);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    for (uint64_t ticket = 1; ticket <= 512; ++ticket)
      writer_.Put(slot, InFlightV1{.ticket = ticket});
  }
  WriteLive(writer_, "x.seg");
  EXPECT_EQ(Count(Snapshot(), SegmentError::kTooManySegments), 1u);
}

TEST_F(CommunicatorRoomTest, CommunicatorsThatAreOverCostNoCopy) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  constexpr size_t kSlots = 1000;
  WriteLive(SegmentOf(kSlots, {.state = 3, .closed_monotonic_ns = 1}), "x.seg");
  EXPECT_LT(BytesReadBy([&] { EXPECT_EQ(Snapshot().segments.live, 1u); }), kSlots * 1000);
}

// Regression: each slot that was ever used cost a small read at every snapshot, whatever came of
// it: 4 million reads for one user's segments.
TEST_F(CommunicatorRoomTest, OneUsersSlotsAreLookedAtOnlySoOften) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  constexpr size_t kSlots = 2000, kServed = kMaxSlotsPerUser / kSlots, kRefused = 2;
  const SegmentWriterV1 segment = SegmentOf(kSlots, {.state = 3, .closed_monotonic_ns = 1});
  WriteLive(segment, "0.seg");
  const uint64_t one = BytesReadBy([&] { EXPECT_EQ(Snapshot().segments.live, 1u); });
  for (size_t i = 1; i < kServed + kRefused; ++i) WriteLive(segment, std::to_string(i) + ".seg");
  SegmentOf(1).WriteTo(Path("other.seg"));
  if (::chown(Path("other.seg").c_str(), 1002, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "needs root, to give files to other users";
  }
  const LockHolder other(Path("other.seg"));
  Snapshot();
  const uint64_t all = BytesReadBy([&] {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(snapshot.segments.live, kServed + 1);
    EXPECT_EQ(snapshot.segments.unusable, kRefused);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), kRefused);
    ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].uid, ::getuid());
    EXPECT_EQ(snapshot.segment_troubles[0].present, kRefused);
  });
  EXPECT_LT(all, (kServed + 1) * one);
}

// Regression: whoever touched the files of dead processes, or let go of their locks again and
// again, had them all read each time, 20 times a second.
TEST_F(CommunicatorRoomTest, ADeadSegmentThatIsTouchedAgainAndAgainIsReadOnceASecond) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  SegmentOf(20).WriteTo(Path("x.seg"));
  const uint64_t one = BytesReadBy([&] { EXPECT_EQ(CommunicatorsOf(Snapshot()), 20u); });
  const uint64_t touched = BytesReadBy([&] {
    for (int i = 1; i < 20; ++i) {
      SetAge("x.seg", seconds(i));
      Advance(std::chrono::milliseconds(50));
      table_.Refresh(now_);
    }
  });
  EXPECT_LT(touched, one);
  SegmentOf(21).WriteTo(Path("x.seg"));
  Advance(kLastStateInterval);
  EXPECT_EQ(CommunicatorsOf(Snapshot()), 21u);
}

// The last counts of a process are read when there are slots to spare again.
TEST_F(CommunicatorRoomTest, ADeadSegmentThatWasRefusedForItsSlotsIsReadLater) {
  constexpr size_t kSlots = 4000, kAtOnce = kMaxSlotsPerUser / kSlots;
  const SegmentWriterV1 segment = SegmentOf(kSlots, {.state = 3, .closed_monotonic_ns = 1});
  for (size_t i = 0; i < kAtOnce + 2; ++i) segment.WriteTo(Path(std::to_string(i) + ".seg"));
  EXPECT_EQ(Snapshot().segments.exited, kAtOnce);
  Advance(kLastStateInterval);
  EXPECT_EQ(Snapshot().segments.exited, kAtOnce + 2);
}

}  // namespace
}  // namespace nccl_exporter::collector
