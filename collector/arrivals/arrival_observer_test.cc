// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/arrival_observer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

// Segments of processes with one GPU each, and what an observer makes of them.
class ArrivalObserverTest : public testing::Test {
 protected:
  struct Process {
    SegmentWriterV1 writer{4};
    std::shared_ptr<const SegmentFile> file;
    bool is_alive = true;
    std::map<size_t, uint64_t> completed;  // by slot
  };

  void Start(int rank, uint64_t id = 7) {
    Process& process = processes_[rank];
    process.writer.Put(ProcessV1{.uid = ::getuid()});
    process.writer.Publish();
    Open(rank, 0, id);
    SegmentError error{};
    std::string detail;
    std::optional<SegmentFile> file = SegmentFile::Open(AT_FDCWD, Path(rank), &error, &detail);
    ASSERT_TRUE(file) << detail;
    process.file = std::make_shared<const SegmentFile>(std::move(*file));
  }
  void Open(int rank, size_t slot, uint64_t id, uint64_t state = 2, uint64_t generation = 1) {
    processes_[rank].writer.Put(slot, CommunicatorV1{.state = state,
                                                     .generation = generation,
                                                     .id = id,
                                                     .ranks = 8,
                                                     .rank = static_cast<uint64_t>(rank),
                                                     .api_version = 6,
                                                     .gpu_uuid = "GPU-" + std::to_string(rank)});
    Write(rank);
  }
  // The next operation of a communicator: one rank is 1 ms later than the next.
  void Complete(int rank, size_t slot = 0) {
    Process& process = processes_[rank];
    const uint64_t ticket = ++process.completed[slot];
    const uint64_t start_ns =
        1000 * kMillisecond + ticket * 20 * kMillisecond + static_cast<uint64_t>(rank) * kMillisecond;
    const uint64_t stop_ns = 1000 * kMillisecond + ticket * 20 * kMillisecond + 15 * kMillisecond;
    process.writer.Put(slot, CompletionV1{.ticket = ticket,
                                          .function = 4,
                                          .sequence = ticket,
                                          .call_ns = start_ns - 10000,
                                          .start_ns = start_ns + 7777777,
                                          .stop_ns = stop_ns + 7777777,
                                          .delivered_ns = stop_ns + 10000});
    Write(rank);
  }
  void Write(int rank) { processes_[rank].writer.WriteTo(Path(rank)); }
  std::string Path(int rank) const { return scratch_.File(std::to_string(rank) + ".seg"); }
  static FileKey KeyOf(const Process& process) { return nccl_exporter::KeyOf(process.file->Status()); }

  void Discover() {
    SegmentLooks looks;
    for (const auto& [rank, process] : processes_) {
      SegmentLook look{.file = process.file, .is_alive = process.is_alive, .slots = {}};
      if (process.is_alive) look.slots = ReadSlotDirectory(*process.file, nullptr);
      looks.emplace(KeyOf(process), std::move(look));
    }
    ++discoveries_;
    observer_.Discover(looks, now_, std::min(now_.monotonic_ns, known_until_ns_));
  }
  void Advance(std::chrono::nanoseconds time) { now_.monotonic_ns += time.count(); }
  // As the collector does it.
  bool Read() {
    Advance(kRingReadInterval);
    if (observer_.AwaitsDiscovery(now_)) Discover();
    return observer_.Read(now_);
  }
  std::optional<ArrivalCounts> Counts(int rank, uint32_t slot = 0, uint64_t generation = 1) const {
    NodeSnapshot snapshot;
    ProcessSnapshot& process = snapshot.processes.emplace_back();
    process.file = KeyOf(processes_.at(rank));
    process.communicators.resize(1);
    process.communicators[0].slot = slot;
    process.communicators[0].generation = generation;
    observer_.AddTo(snapshot);
    return process.communicators[0].arrivals;
  }
  uint64_t Uncompared(Uncompared cause) const {
    NodeSnapshot snapshot;
    observer_.AddTo(snapshot);
    return snapshot.uncompared_operations[static_cast<size_t>(cause)];
  }

  ScratchDirectory scratch_;
  std::map<int, Process> processes_;
  int64_t slew_ns_ = 0;
  Moment now_{.realtime_ns = 0, .monotonic_ns = 2'000'000'000};
  int64_t known_until_ns_ = INT64_MAX;
  int discoveries_ = 0;
  ArrivalObserver observer_{[this] { return slew_ns_; }};
};

TEST_F(ArrivalObserverTest, AUserWithManyCommunicatorsLeavesRoomForAnothers) {
  constexpr size_t kEach = kMaxRings / 2 + 10;
  for (const int rank : {0, 1}) {
    Process with_many{.writer = SegmentWriterV1(kEach + 1), .file = nullptr, .completed = {}};
    Process& process = processes_.emplace(rank, std::move(with_many)).first->second;
    for (size_t slot = 0; slot < kEach; ++slot) {
      process.writer.Put(slot, CommunicatorV1{.id = 1000 + slot,
                                              .ranks = 8,
                                              .rank = static_cast<uint64_t>(rank),
                                              .api_version = 6,
                                              .gpu_uuid = "GPU-" + std::to_string(rank)});
    }
    Start(rank, 1000);
    if (::chown(Path(rank).c_str(), 1001, static_cast<gid_t>(-1)) != 0) {
      GTEST_SKIP() << "needs root, to give files to other users";
    }
  }
  Discover();
  Start(2);
  Start(3);
  Discover();
  Complete(2);
  Complete(3);
  Read();
  ASSERT_TRUE(Counts(3).has_value());
  EXPECT_EQ(Counts(3)->compared, 1u);
}

TEST_F(ArrivalObserverTest, CountsByUserTheLiveCommunicatorsThatFindNoRoom) {
  constexpr size_t kMore = 10, kSlots = kMaxRingsPerUser + kMore;
  Process with_many{.writer = SegmentWriterV1(kSlots + 1), .file = nullptr, .completed = {}};
  Process& process = processes_.emplace(0, std::move(with_many)).first->second;
  for (size_t slot = 1; slot < kSlots; ++slot) process.writer.Put(slot, CommunicatorV1{.id = slot});
  Start(0);
  const auto without_room = [&] {
    NodeSnapshot snapshot;
    observer_.AddTo(snapshot);
    std::map<uint64_t, uint64_t> counts;
    for (const UncomparedCommunicators& user : snapshot.uncompared_communicators) counts[user.uid.value()] = user.count;
    return counts;
  };
  for (int i = 0; i < 2; ++i) {
    Discover();
    EXPECT_EQ(without_room(), (std::map<uint64_t, uint64_t>{{::getuid(), kMore}}));
  }
  for (size_t slot = 0; slot < kMore; ++slot) Open(0, slot, 1000 + slot, 3);  // closed
  for (int i = 0; i < 3; ++i) Discover();
  EXPECT_TRUE(without_room().empty()) << "those that are over give way";
}

// What this process has read so far; 0 where the kernel does not tell.
uint64_t BytesRead() {
  std::ifstream file("/proc/self/io");
  std::string name;
  uint64_t bytes = 0;
  file >> name >> bytes;
  return bytes;
}

// Regression: each look read every slot without a ring, however many there were.
TEST_F(ArrivalObserverTest, SlotsThatFindNoRingCostNoMoreThanThereAreRings) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not say what is read here";
  constexpr size_t kSlots = 4000;
  Process with_many{.writer = SegmentWriterV1(kSlots + 1), .file = nullptr, .completed = {}};
  Process& process = processes_.emplace(0, std::move(with_many)).first->second;
  for (size_t slot = 0; slot < kSlots; ++slot) process.writer.Put(slot, CommunicatorV1{.id = slot});
  Start(0);
  const uint64_t before_walk = BytesRead();
  ReadSlotDirectory(*process.file, nullptr);
  const uint64_t before = BytesRead();
  Discover();
  EXPECT_LT(BytesRead() - before,
            (before - before_walk) + (kMaxRings + 100) * 2 * offsetof(layout::CommunicatorSlot, functions));
}

TEST_F(ArrivalObserverTest, ComparesTheRanksOfSeveralProcesses) {
  Start(0);
  Start(1);
  Discover();
  EXPECT_TRUE(Read());
  EXPECT_EQ(Counts(1), ArrivalCounts{}) << "known series begin at 0";
  for (int i = 0; i < 3; ++i) {
    Complete(0);
    Complete(1);
    Read();
  }
  EXPECT_EQ(Counts(0), (ArrivalCounts{.compared = 3, .last = 0, .lateness_ns = 0}));
  EXPECT_EQ(Counts(1)->compared, 3u);
  EXPECT_EQ(Counts(1)->last, 3u);
  EXPECT_NEAR(static_cast<double>(Counts(1)->lateness_ns), 3e6, 3000);
}

// Time synchronization slews CLOCK_MONOTONIC by 100 parts in a million for twenty seconds. Rank 0 is bound closely
// before, rank 1 always; no rank is late.
TEST_F(ArrivalObserverTest, ASlewedClockMakesNobodyLate) {
  Start(0);
  Start(1);
  Discover();
  for (uint64_t second = 1; second <= 40; ++second) {
    const uint64_t slewed_ns = second > 20 ? (second - 20) * 100'000 : 0;
    slew_ns_ = static_cast<int64_t>(slewed_ns);
    for (const int rank : {0, 1}) {
      const bool is_close = rank == 1 || second <= 20;
      const uint64_t start_ns = second * 1000 * kMillisecond;
      processes_[rank].writer.Put(
          0, CompletionV1{.ticket = second,
                          .function = 4,
                          .sequence = second,
                          .call_ns = start_ns + slewed_ns - (is_close ? 10'000 : 500 * kMillisecond),
                          .start_ns = start_ns + 7777777,
                          .stop_ns = start_ns + 15 * kMillisecond + 7777777,
                          .delivered_ns = start_ns + slewed_ns + 15 * kMillisecond + (is_close ? 10'000 : 5'000'000)});
      Write(rank);
    }
    Read();
  }
  EXPECT_EQ(Counts(0), ArrivalCounts{});
  EXPECT_EQ(Counts(1), ArrivalCounts{});
  EXPECT_EQ(Uncompared(Uncompared::kUncertainClocks), 80u);
}

TEST_F(ArrivalObserverTest, ARankAloneHasNoCountsAndIsNotRead) {
  Start(0);
  Complete(0);
  Discover();
  EXPECT_FALSE(Read());
  EXPECT_FALSE(Counts(0));
}

// The first operation shows that all ranks are there: those that were not seen before are looked for.
TEST_F(ArrivalObserverTest, MatchesOnlyWhenEveryRankIsKnown) {
  Start(0);
  Start(1);
  Discover();
  Start(2);  // not discovered yet
  for (const int rank : {0, 1, 2}) Complete(rank);
  Read();
  Read();
  EXPECT_EQ(Counts(1), (ArrivalCounts{.compared = 1, .last = 0, .lateness_ns = Counts(1)->lateness_ns}));
  EXPECT_EQ(Counts(2)->last, 1u);
}

// Regression: where a listing had to wait, ranks were compared while others of their communicator were not known yet.
TEST_F(ArrivalObserverTest, MatchesNothingUntilTheFilesOfAllRanksAreKnown) {
  known_until_ns_ = now_.monotonic_ns;
  Start(0);
  Start(1);
  Discover();
  for (const int rank : {0, 1}) Complete(rank);
  for (int i = 0; i < 50; ++i) Read();
  EXPECT_EQ(Counts(1), ArrivalCounts{});
  Start(2);
  Complete(2);
  known_until_ns_ = INT64_MAX;
  Discover();
  Advance(kAskInterval);
  Read();
  EXPECT_EQ(Counts(1)->last, 0u);
  EXPECT_EQ(Counts(2)->last, 1u);
}

// Regression: whoever claimed a communicator anew after each look made the collector look at all segments every 20 ms.
TEST_F(ArrivalObserverTest, AUserAsksForDiscoveryOnlySoOftenAndDelaysNobodyElse) {
  Start(0);
  Start(1);
  for (const int rank : {2, 3}) {
    Start(rank, 8);
    if (::chown(Path(rank).c_str(), 1001, static_cast<gid_t>(-1)) != 0) {
      GTEST_SKIP() << "needs root, to give files to other users";
    }
  }
  Discover();
  discoveries_ = 0;
  const auto rounds = std::chrono::seconds(1) / kRingReadInterval;
  for (int round = 1; round <= rounds; ++round) {
    for (const int rank : {0, 1}) {
      Open(rank, 0, 7, 2, static_cast<uint64_t>(round) + 1);
      if (round == 1) Complete(rank);
    }
    if (round == 2) {
      for (const int rank : {2, 3}) Complete(rank);
    }
    Read();
    if (round == 2) {
      EXPECT_EQ(Counts(3)->last, 1u) << "another user asks at once";
    }
  }
  EXPECT_GE(discoveries_, 2);
  EXPECT_LE(discoveries_, rounds / 4);
}

TEST_F(ArrivalObserverTest, ARestartedObserverBeginsWithWhatTheRingsHold) {
  Start(0);
  Start(1);
  for (int i = 0; i < 600; ++i) {
    for (const int rank : {0, 1}) Complete(rank);
  }
  Discover();
  Read();
  EXPECT_EQ(Counts(1)->last, 512u);
  EXPECT_EQ(Uncompared(Uncompared::kRingOverrun), 0u);
}

TEST_F(ArrivalObserverTest, ARingOverrunLosesComparisonsOnly) {
  Start(0);
  Start(1);
  Discover();
  for (const int rank : {0, 1}) Complete(rank);
  Read();
  for (int i = 0; i < 600; ++i) {
    for (const int rank : {0, 1}) Complete(rank);
  }
  Read();
  EXPECT_EQ(Counts(1)->last, 513u);
  EXPECT_EQ(Counts(0)->last, 0u);
  EXPECT_EQ(Uncompared(Uncompared::kRingOverrun), 2 * 88u);
}

TEST_F(ArrivalObserverTest, AFinalizedCommunicatorKeepsItsCountsUntilItsSlotIsClaimedAnew) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Complete(rank);
  Discover();
  Read();
  for (const int rank : {0, 1}) Complete(rank);
  for (const int rank : {0, 1}) Open(rank, 0, 7, 3);
  Discover();
  EXPECT_TRUE(Read()) << "what was completed last";
  EXPECT_EQ(Counts(1)->last, 2u);
  Discover();
  EXPECT_FALSE(Read());
  EXPECT_EQ(Counts(1)->last, 2u);
  for (const int rank : {0, 1}) {
    for (size_t entry : {0, 1}) processes_[rank].writer.PutWord(processes_[rank].writer.CompletionAt(0, entry), 0);
    Open(rank, 0, 9, 2, 2);
  }
  Discover();
  EXPECT_FALSE(Counts(1)) << "of the former generation";
  Read();
  EXPECT_EQ(Counts(1, 0, 2), ArrivalCounts{});
}

TEST_F(ArrivalObserverTest, ARingThatIsClaimedAnewBetweenTwoLooksIsNotMatched) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Complete(rank);
  Discover();
  Read();
  for (const int rank : {0, 1}) {
    Open(rank, 0, 9, 2, 2);
    Complete(rank);
  }
  Read();
  EXPECT_EQ(Counts(1)->compared, 1u);
}

TEST_F(ArrivalObserverTest, TheCountsOfAProcessThatHasGoneStay) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Complete(rank);
  Discover();
  Read();
  processes_[1].is_alive = false;
  Discover();
  Discover();
  EXPECT_EQ(Counts(1)->last, 1u);
  EXPECT_FALSE(Read()) << "rank 0 is alone now";
  EXPECT_EQ(Counts(0)->compared, 1u);
}

TEST_F(ArrivalObserverTest, CommunicatorsOfOneProcessAreKeptApart) {
  Start(0);
  Start(1);
  for (const int rank : {0, 1}) Open(rank, 1, 8);
  for (const int rank : {0, 1}) {
    Complete(rank, 0);
    Complete(rank, 0);
    Complete(rank, 1);
  }
  Discover();
  Read();
  EXPECT_EQ(Counts(1, 0)->last, 2u);
  EXPECT_EQ(Counts(1, 1)->last, 1u);
}

TEST_F(ArrivalObserverTest, AFileThatIsNoSegmentIsPassedOver) {
  Start(0);
  Start(1);
  processes_[1].writer.PutWord(SegmentWriterV1::kMagic, 0);
  Write(1);
  Discover();
  EXPECT_FALSE(Read());
}

}  // namespace
}  // namespace nccl_exporter
