// SPDX-License-Identifier: Apache-2.0
// Tables of peers behind the slots, valid and invalid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <vector>

#include "collector/reader/segment_reader.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

using V1 = SegmentWriterV1;

constexpr Moment kNow{.realtime_ns = 1'700'000'000'000'000'000, .monotonic_ns = 500'000'000'000};
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

// A segment of 1.5 with three slots, the second of which has peers.
class NetworkPeersTest : public testing::TestWithParam<size_t> {
 protected:
  NetworkPeersTest() {
    writer_.AddPeerTables(GetParam());
    writer_.Put(ProcessV1{});
    for (size_t slot = 0; slot < 2; ++slot) writer_.Put(slot, CommunicatorV1{.ranks = 8});
    writer_.PutWord(V1::NetworkShareAt(writer_.SlotAt(1)), 1'000'000);
    writer_.Publish();
  }
  void PutPeer(size_t block, uint64_t number, uint64_t sends, uint64_t receives) {
    const size_t at = writer_.PeerAt(1, block);
    writer_.PutWord(at, number);
    for (size_t word = 0; word < 6; ++word) {
      writer_.PutWord(at + 32 + word * 8, sends * (word + 1));
      writer_.PutWord(at + 80 + word * 8, receives * (word + 1));
    }
  }
  static NetworkDirectionCounts CountsOf(uint64_t unit) {
    return {
        .wait_ns = {unit, 2 * unit, 3 * unit, 4 * unit}, .bytes = 5 * unit, .operations = 6 * unit};
  }
  static PeerNetworkCounts Peer(int peer, uint64_t sends, uint64_t receives) {
    return {.peer = peer, .counts = {.directions = {CountsOf(sends), CountsOf(receives)}}};
  }
  std::vector<PeerNetworkCounts> Read(size_t slot = 1) const {
    return ParseSegment(writer_.bytes(), 0, {.now = kNow})
        .process.value()
        .communicators.at(slot)
        .network_peers;
  }

  V1 writer_{3, V1::kHeaderBytes, V1::kSlotBytesOf13};
};

TEST_P(NetworkPeersTest, AreReadByRankAndTheOthersComeLast) {
  PutPeer(0, 0, 7, 0);
  PutPeer(1, 8, 1, 2);
  PutPeer(2, 1, 0, 3);
  PutPeer(31, 4, 5, 0);
  using testing::ElementsAre;
  EXPECT_THAT(Read(), ElementsAre(Peer(0, 0, 3), Peer(3, 5, 0), Peer(7, 1, 2),
                                  Peer(PeerNetworkCounts::kOthers, 7, 0)));
  EXPECT_TRUE(Read(0).empty()) << "its network operations are not timed";
}

TEST_P(NetworkPeersTest, AreThereOnceEachAndAreRanksWhateverTheWriterClaims) {
  PutPeer(1, 5, 1, 0);
  PutPeer(2, 5, 2, 1);
  PutPeer(3, 9, 1, 1);
  PutPeer(4, kHuge, 2, 1);
  PutPeer(5, 0, 100, 100);
  PutPeer(6, 3, 0, 0);
  EXPECT_THAT(Read(), testing::ElementsAre(Peer(4, 3, 1), Peer(PeerNetworkCounts::kOthers, 3, 2)));
}

INSTANTIATE_TEST_SUITE_P(OfAnyStride, NetworkPeersTest, testing::Values(4096, 8192, 65536));

V1 SegmentWithoutPeers() {
  V1 writer(2, V1::kHeaderBytes, V1::kSlotBytesOf13);
  writer.Put(ProcessV1{});
  writer.Put(0, CommunicatorV1{.ranks = 8});
  writer.PutWord(V1::NetworkShareAt(writer.SlotAt(0)), 1'000'000);
  writer.Publish();
  return writer;
}

// kCount if it is usable.
SegmentError ErrorOf(std::span<const std::byte> bytes) {
  const SegmentRead read = ParseSegment(bytes, 0, {.now = kNow});
  EXPECT_NE(read.process.has_value(), read.fault.has_value());
  return read.fault ? read.fault->error : SegmentError::kCount;
}

TEST(NetworkPeersTables, AreAbsentUnlessTheJobHasAskedForThem) {
  const V1 writer = SegmentWithoutPeers();
  const SegmentRead read = ParseSegment(writer.bytes(), 0, {.now = kNow});
  const CommunicatorSnapshot& communicator = read.process.value().communicators.at(0);
  EXPECT_TRUE(communicator.network);
  EXPECT_TRUE(communicator.network_peers.empty());
}

TEST(NetworkPeersTables, AreRefusedIfTheirSizeContradictsTheLimits) {
  for (const uint64_t value : {uint64_t{1}, uint64_t{4088}, uint64_t{4100}, uint64_t{65544},
                               uint64_t{1} << 63, kHuge - 7}) {
    V1 writer = SegmentWithoutPeers();
    writer.PutWord(V1::kPeerTableBytesField, value);
    EXPECT_EQ(ErrorOf(writer.bytes()), SegmentError::kBadGeometry) << value;
  }
}

TEST(NetworkPeersTables, AreRefusedIfTheFileEndsBeforeTheirEnd) {
  V1 writer = SegmentWithoutPeers();
  writer.PutWord(V1::kPeerTableBytesField, 4096);
  EXPECT_EQ(ErrorOf(writer.bytes()), SegmentError::kTruncated) << "it ends with its slots";
  writer.AddPeerTables();
  const std::span<const std::byte> whole(writer.bytes());
  EXPECT_EQ(ErrorOf(whole), SegmentError::kCount);
  EXPECT_EQ(ErrorOf(whole.first(whole.size() - 1)), SegmentError::kTruncated);
}

}  // namespace
}  // namespace nccl_exporter::collector
