// SPDX-License-Identifier: Apache-2.0
// Room for rings: how it is shared by users, and what those without a ring cost.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "collector/testing/arrival_fixture.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {
namespace {

using ArrivalRoomTest = ArrivalFixture;

TEST_F(ArrivalRoomTest, AUserWithManyCommunicatorsLeavesRoomForAnothers) {
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

TEST_F(ArrivalRoomTest, CountsByUserTheLiveCommunicatorsThatFindNoRoom) {
  constexpr size_t kMore = 10, kSlots = kMaxRingsPerUser + kMore;
  Process with_many{.writer = SegmentWriterV1(kSlots + 1), .file = nullptr, .completed = {}};
  Process& process = processes_.emplace(0, std::move(with_many)).first->second;
  for (size_t slot = 1; slot < kSlots; ++slot) process.writer.Put(slot, CommunicatorV1{.id = slot});
  Start(0);
  const auto without_room = [&] {
    NodeSnapshot snapshot;
    observer_.AddTo(snapshot);
    std::map<uint64_t, uint64_t> counts;
    for (const UncomparedCommunicators& user : snapshot.uncompared_communicators)
      counts[user.uid.value()] = user.count;
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

// Bytes that this process has read so far; 0 if the kernel does not count them.
uint64_t BytesRead() {
  std::ifstream file("/proc/self/io");
  std::string name;
  uint64_t bytes = 0;
  file >> name >> bytes;
  return bytes;
}

// Regression: each look read every slot without a ring, however many there were.
TEST_F(ArrivalRoomTest, SlotsThatFindNoRingCostNoMoreThanThereAreRings) {
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
            (before - before_walk) +
                (kMaxRings + 100) * 2 * offsetof(layout::CommunicatorSlot, functions));
}

// Regression: a process that claimed a communicator again after each look made the collector look
// at all segments every 20 ms.
TEST_F(ArrivalRoomTest, AUserAsksForDiscoveryOnlySoOftenAndDelaysNobodyElse) {
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

}  // namespace
}  // namespace nccl_exporter::collector
