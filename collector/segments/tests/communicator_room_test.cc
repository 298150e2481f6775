// SPDX-License-Identifier: Apache-2.0
// One user's communicators: what a snapshot holds of them, and what they cost to read, whatever his
// processes do.
#include <unistd.h>

#include <algorithm>
#include <array>
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
  // Bytes that this process has read so far; 0 if the kernel does not count them.
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
// before it took. The order in which they die is any.
TEST_F(CommunicatorRoomTest, ProcessesThatDieOneAfterAnotherTakeNoMoreRoomThanOthers) {
  const SegmentWriterV1 segment = SegmentOf(kMaxCommunicators / 2);
  std::array<size_t, 4> order = {0, 1, 2, 3};
  do {
    writers_.clear();
    Snapshot();
    Advance(kRetention + seconds(2));
    Snapshot();
    for (size_t i = 0; i < order.size(); ++i) WriteLive(segment, std::to_string(i) + ".seg");
    Snapshot();
    for (const size_t i : order) {
      writers_[i]->Kill();
      Advance(seconds(1));
      Refresh(table_, now_);
    }
    for (int i = 0; i < 2; ++i) {
      const NodeSnapshot snapshot = Snapshot();
      EXPECT_EQ(CommunicatorsOf(snapshot), kMaxCommunicators) << testing::PrintToString(order);
      EXPECT_EQ(snapshot.segments.exited, 4u);
      EXPECT_EQ(snapshot.segments.unusable, 0u);
      Advance(seconds(1));
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(CommunicatorRoomTest, TheDeadComeAfterTheLiving) {
  WriteLive(SegmentOf(kMaxCommunicators / 2 + 1), "dead.seg");
  writers_[0]->Kill();
  EXPECT_EQ(Snapshot().segments.exited, 1u);
  WriteLive(SegmentOf(kMaxCommunicators / 2), "live.seg");
  const NodeSnapshot crowded = Snapshot();
  EXPECT_EQ(crowded.segments.live, 1u);
  EXPECT_EQ(crowded.segments.exited, 1u);
  for (const ProcessSnapshot& process : crowded.processes) {
    EXPECT_EQ(process.communicators.size(), kMaxCommunicators / 2);
    EXPECT_EQ(process.unread_in_use, process.is_alive ? 0u : 1u);
  }
  EXPECT_TRUE(crowded.segment_troubles.empty()) << "all that live are followed";
  SegmentOf(1).WriteTo(Path("live.seg"));
  EXPECT_EQ(CommunicatorsOf(Snapshot()), kMaxCommunicators / 2 + 2) << "they are still there";
}

// Regression: with 8 processes of 255 communicators and the overflow slot, one file found no room,
// and its rank was named as missing. So with any number that does not fit: what is left out is
// finalized first, and each process loses the same.
TEST_F(CommunicatorRoomTest, IsGivenByCommunicatorAndNotByFile) {
  for (const size_t processes : {8, 16, 24}) {
    writers_.clear();
    Snapshot();
    Advance(kRetention + seconds(2));
    Snapshot();
    SegmentWriterV1 segment = SegmentOf(256);
    for (size_t slot = 20; slot < 256; ++slot)
      segment.Put(slot,
                  CommunicatorV1{.state = 3,
                                 .closed_monotonic_ns = static_cast<uint64_t>(now_.monotonic_ns)});
    segment.Put(256, 4, FunctionV1{.operations = {1}});  // the overflow slot
    for (size_t i = 0; i < processes; ++i) WriteLive(segment, std::to_string(i) + ".seg");
    for (int scrape = 0; scrape < 2; ++scrape) {
      const NodeSnapshot snapshot = Snapshot();
      ASSERT_EQ(snapshot.processes.size(), processes);
      const uint64_t each = std::min<uint64_t>(257, kMaxCommunicators / processes);
      for (const ProcessSnapshot& process : snapshot.processes) {
        EXPECT_EQ(process.communicators.size(), each);
        EXPECT_TRUE(process.communicators.back().is_overflow);
        EXPECT_EQ(process.unread_in_use, 0u);
        EXPECT_EQ(process.unread_finalized, 257 - each);
      }
      EXPECT_EQ(snapshot.segments.unusable, 0u);
      EXPECT_TRUE(snapshot.segment_troubles.empty());
    }
  }
}

// Regression: one process of 2,049 communicators was not served at all, and four of 2,500 neither.
TEST_F(CommunicatorRoomTest, AProcessWithMoreThanThereIsRoomForIsServedWithSome) {
  const SegmentWriterV1 segment = SegmentOf(kMaxCommunicators / 4 + 100);
  for (int i = 0; i < 4; ++i) WriteLive(segment, std::to_string(i) + ".seg");
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.processes.size(), 4u);
  EXPECT_EQ(CommunicatorsOf(snapshot), kMaxCommunicators);
  ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
  EXPECT_EQ(snapshot.segment_troubles[0].error, SegmentError::kTooManySegments);
  EXPECT_EQ(snapshot.segment_troubles[0].present, 4u);
}

// Regression: a segment with more communicators than there was room for was read, thrown away and
// cost nothing.
TEST_F(CommunicatorRoomTest, SegmentsThatAreTooLargeCostNoMoreThanOneThatFits) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  constexpr size_t kSlots = kMaxCommunicators / 2;
  const SegmentWriterV1 segment = SegmentOf(kSlots);
  WriteLive(segment, "0.seg");
  const uint64_t one = BytesReadBy([&] { EXPECT_EQ(CommunicatorsOf(Snapshot()), kSlots); });
  for (int i = 1; i < 5; ++i) WriteLive(segment, std::to_string(i) + ".seg");
  Snapshot();
  EXPECT_LT(BytesReadBy([&] { EXPECT_EQ(CommunicatorsOf(Snapshot()), kMaxCommunicators); }),
            one * 2 * 5 / 4);
}

TEST_F(CommunicatorRoomTest, SegmentsThatAreTooLargeTakeNoRoomOfOthers) {
  const SegmentWriterV1 large = SegmentOf(kMaxCommunicators / 2 + 1), small = SegmentOf(2);
  for (int i = 0; i < 2; ++i) WriteLive(large, "large" + std::to_string(i) + ".seg");
  for (int i = 0; i < 2; ++i) WriteLive(small, "small" + std::to_string(i) + ".seg");
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.segments.live, 4u);
  for (const ProcessSnapshot& process : snapshot.processes)
    EXPECT_EQ(process.unread_in_use != 0, process.segment.starts_with("large"));
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
  PutFunctions(writer_, 2);
  WriteLive(writer_, "x.seg");
  EXPECT_EQ(CommunicatorsOf(Snapshot()), kSlots);
}

TEST_F(CommunicatorMemoryTest, ManyFunctionsTakeTheRoomOfSeveral) {
  PutFunctions(writer_, kFunctionCount);
  WriteLive(writer_, "x.seg");
  const NodeSnapshot snapshot = Snapshot();
  EXPECT_LT(CommunicatorsOf(snapshot), kSlots / 2);
  EXPECT_EQ(snapshot.processes.at(0).unread_in_use, kSlots - CommunicatorsOf(snapshot));
  EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 1u);
}

TEST_F(CommunicatorMemoryTest, ManyOperationsInFlightTakeTheRoomOfSeveral) {
  PutFunctions(writer_, 3);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    for (uint64_t ticket = 1; ticket <= 512; ++ticket)
      writer_.Put(slot, InFlightV1{.ticket = ticket});
  }
  WriteLive(writer_, "x.seg");
  EXPECT_LT(CommunicatorsOf(Snapshot()), kSlots / 2);
}

// Those of processes that take the room of several each.
class CrowdedRoomTest : public CommunicatorRoomTest {
 protected:
  static constexpr size_t kFunctions = 4;
  static constexpr size_t kFit = kMaxCommunicators / 2;  // of so many functions

  SegmentWriterV1 Large(size_t communicators, const CommunicatorV1& each = {}) {
    SegmentWriterV1 writer = SegmentOf(communicators, each);
    for (size_t slot = 0; slot < communicators; ++slot) {
      for (size_t function = 0; function < kFunctions; ++function)
        writer.Put(slot, function, FunctionV1{.operations = {1}});
    }
    return writer;
  }
  CommunicatorV1 Finalized() const {
    return {.state = 3, .closed_monotonic_ns = static_cast<uint64_t>(now_.monotonic_ns)};
  }
  static const ProcessSnapshot& Process(const NodeSnapshot& snapshot, const std::string& name) {
    return *std::ranges::find(snapshot.processes, name, &ProcessSnapshot::segment);
  }
};

// Regression: a communicator that found no room was taken for a small one. The last one of a living
// process found none for good, beside finalized ones of a process that had ended.
TEST_F(CrowdedRoomTest, AFinalizedCommunicatorOfTheDeadKeepsNoRoomThatALiveOneLacks) {
  Large(kFit - 10, Finalized()).WriteTo(Path("dead.seg"));
  Snapshot();
  WriteLive(Large(90), "live.seg");
  for (int scrape = 0; scrape < 3; ++scrape) {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(Process(snapshot, "live.seg").communicators.size(), 90u) << scrape;
    EXPECT_EQ(Process(snapshot, "dead.seg").communicators.size(), kFit - 90);
    EXPECT_EQ(Count(snapshot, SegmentError::kTooManySegments), 0u);
    Advance(seconds(1));
  }
}

TEST_F(CrowdedRoomTest, NorDoesOneThatThereWasRoomForBeforeALiveOneGrew) {
  Large(kFit - 30, Finalized()).WriteTo(Path("dead.seg"));
  WriteLive(SegmentOf(50), "live.seg");
  EXPECT_EQ(Process(Snapshot(), "live.seg").communicators.size(), 50u);
  Large(50).WriteTo(Path("live.seg"));
  EXPECT_EQ(Process(Snapshot(), "live.seg").communicators.size(), 50u);
}

// A living process, too, wants all of the communicators that were left out.
TEST_F(CrowdedRoomTest, AFinalizedOneOfTheDeadKeepsNoRoomThatOneOfTheLivingLacks) {
  Large(kFit - 10, Finalized()).WriteTo(Path("dead.seg"));
  Snapshot();
  WriteLive(Large(90, Finalized()), "live.seg");
  NodeSnapshot snapshot = Snapshot();
  for (int scrape = 0; scrape < 3; ++scrape) snapshot = Snapshot();
  EXPECT_EQ(Process(snapshot, "live.seg").communicators.size(), 90u);
  EXPECT_EQ(Process(snapshot, "dead.seg").communicators.size(), kFit - 90);
}

// Regression: one process in need of less than its part lacked its last communicator for good.
TEST_F(CrowdedRoomTest, EachProcessHasWhatItNeedsOrAnEqualPart) {
  WriteLive(Large(kFit), "greedy.seg");
  WriteLive(Large(kFit / 2 - 5), "modest.seg");
  NodeSnapshot snapshot = Snapshot();
  for (int scrape = 0; scrape < 3; ++scrape) snapshot = Snapshot();
  EXPECT_EQ(Process(snapshot, "modest.seg").communicators.size(), kFit / 2 - 5);
  EXPECT_EQ(Process(snapshot, "greedy.seg").communicators.size(), kFit / 2 + 5);
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
  constexpr size_t kSlots = 2000, kFit = kMaxSlotsPerUser / kSlots, kMore = 4;
  const SegmentWriterV1 segment = SegmentOf(kSlots, {.state = 3, .closed_monotonic_ns = 1});
  WriteLive(segment, "0.seg");
  const uint64_t one = BytesReadBy([&] { EXPECT_EQ(Snapshot().segments.live, 1u); });
  for (size_t i = 1; i < kFit + kMore; ++i) WriteLive(segment, std::to_string(i) + ".seg");
  SegmentOf(1).WriteTo(Path("other.seg"));
  if (::chown(Path("other.seg").c_str(), 1002, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "needs root, to give files to other users";
  }
  const LockHolder other(Path("other.seg"));
  Snapshot();
  const uint64_t all = BytesReadBy([&] {
    const NodeSnapshot snapshot = Snapshot();
    EXPECT_EQ(snapshot.segments.live, kFit + kMore + 1) << "each has its part";
    ASSERT_EQ(snapshot.segment_troubles.size(), 1u);
    EXPECT_EQ(snapshot.segment_troubles[0].uid, ::getuid());
    EXPECT_EQ(snapshot.segment_troubles[0].present, kFit + kMore);
  });
  EXPECT_LT(all, (kFit + kMore) * one);
}

// Regression: a user who touched the files of dead processes, or let go of their locks again and
// again, had them all read each time, 20 times a second.
TEST_F(CommunicatorRoomTest, ADeadSegmentThatIsTouchedAgainAndAgainIsReadOnceASecond) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  SegmentOf(20).WriteTo(Path("x.seg"));
  const uint64_t one = BytesReadBy([&] { EXPECT_EQ(CommunicatorsOf(Snapshot()), 20u); });
  const uint64_t touched = BytesReadBy([&] {
    for (int i = 1; i < 20; ++i) {
      SetAge("x.seg", seconds(i));
      Advance(std::chrono::milliseconds(50));
      Refresh(table_, now_);
    }
  });
  EXPECT_LT(touched, one);
  SegmentOf(21).WriteTo(Path("x.seg"));
  Advance(kLastStateInterval);
  EXPECT_EQ(CommunicatorsOf(Snapshot()), 21u);
}

// The last counts of a process are read when there are slots to spare again.
TEST_F(CommunicatorRoomTest, ADeadSegmentThatLackedSlotsIsReadLater) {
  constexpr size_t kSlots = 4000, kAtOnce = kMaxSlotsPerUser / kSlots;
  const SegmentWriterV1 segment = SegmentOf(kSlots, {.state = 3, .closed_monotonic_ns = 1});
  for (size_t i = 0; i < kAtOnce + 2; ++i) segment.WriteTo(Path(std::to_string(i) + ".seg"));
  const auto whole = [](const NodeSnapshot& snapshot) {
    return std::ranges::count(snapshot.processes, 0u, &ProcessSnapshot::unread_in_use);
  };
  const NodeSnapshot first = Snapshot();
  EXPECT_EQ(first.segments.exited, kAtOnce + 2);
  EXPECT_EQ(whole(first), static_cast<int64_t>(kAtOnce));
  Advance(kLastStateInterval);
  EXPECT_EQ(whole(Snapshot()), static_cast<int64_t>(kAtOnce) + 2);
}

// Regression: a dead segment of which the daemon had read a part was read whole when there was
// room, and its other communicators, which had been in use later, were taken for growth: the
// process was alive again, without its lock, until the retention time was over.
TEST_F(CrowdedRoomTest, MoreRoomBringsNoProcessBackToLife) {
  constexpr size_t kCommunicators = 60;
  Large(kFit - 10).WriteTo(Path("earlier.seg"));
  Snapshot();
  Advance(kRetention / 2);
  SegmentWriterV1 dead = SegmentOf(kCommunicators);
  for (size_t slot = 0; slot < kCommunicators; ++slot) {
    const uint64_t start_ns = static_cast<uint64_t>(now_.monotonic_ns) - kCommunicators + slot;
    dead.Put(slot, 4, FunctionV1{.last_start_ns = start_ns, .operations = {1}});
  }
  dead.WriteTo(Path("dead.seg"));
  EXPECT_LT(Process(Snapshot(), "dead.seg").communicators.size(), kCommunicators);
  Advance(kRetention / 2 + seconds(1));
  for (int scrape = 0; scrape < 10; ++scrape) {
    const NodeSnapshot snapshot = Snapshot();
    Advance(seconds(2));
    EXPECT_FALSE(Process(snapshot, "dead.seg").is_alive) << scrape;
    EXPECT_EQ(Process(snapshot, "dead.seg").communicators.size(), kCommunicators);
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
