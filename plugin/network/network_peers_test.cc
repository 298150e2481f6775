// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_peers.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <set>
#include <thread>

#include "plugin/network/network_timer_fixture.h"

namespace nccl_exporter::plugin {
namespace {

class NetworkPeersTest : public NetworkTimerTest {
 protected:
  void CountPeers(uint32_t limit) { timer_->peers().Open(table_.get(), limit); }
  void Play(int peer, bool is_send, uint32_t steps = 1) {
    const uint32_t key = timer_->Start(is_send, peer, 5);
    for (uint32_t step = 0; step < steps; ++step) PlayStep(key, is_send, step);
    timer_->Stop(key);
  }
  uint64_t NumberOf(size_t block) const { return LoadRelaxed(table_->blocks[block].number); }
  const layout::NetworkDirectionBlock& Peer(size_t block, NetworkDirection direction) const {
    return table_->blocks[block].directions[static_cast<size_t>(direction)];
  }
  uint64_t Operations(size_t block) const {
    return LoadRelaxed(Peer(block, NetworkDirection::kSend).operations) +
           LoadRelaxed(Peer(block, NetworkDirection::kRecv).operations);
  }
  // The blocks add up to what is counted of all.
  void ExpectWhole() const {
    for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
      const layout::NetworkDirectionBlock& all = slot_->network.directions[i];
      layout::NetworkDirectionBlock sum{};
      for (const layout::NetworkPeerBlock& block : table_->blocks) {
        for (size_t state = 0; state < kNetworkStateCount; ++state)
          AddRelaxed(sum.wait_ns[state], LoadRelaxed(block.directions[i].wait_ns[state]));
        AddRelaxed(sum.bytes, LoadRelaxed(block.directions[i].bytes));
        AddRelaxed(sum.operations, LoadRelaxed(block.directions[i].operations));
      }
      for (size_t state = 0; state < kNetworkStateCount; ++state)
        EXPECT_EQ(LoadRelaxed(sum.wait_ns[state]), LoadRelaxed(all.wait_ns[state]));
      EXPECT_EQ(LoadRelaxed(sum.bytes), LoadRelaxed(all.bytes));
      EXPECT_EQ(LoadRelaxed(sum.operations), LoadRelaxed(all.operations));
    }
  }

  std::unique_ptr<layout::NetworkPeerTable> table_ = std::make_unique<layout::NetworkPeerTable>();
};

TEST_F(NetworkPeersTest, GivesEachPeerABlockInTheOrderInWhichTheyAreMet) {
  CountPeers(31);
  for (const bool is_send : {true, false}) {
    Play(0, is_send, 2);
    Play(4095, is_send, 3);
  }
  EXPECT_EQ(NumberOf(1), 1u);
  EXPECT_EQ(NumberOf(2), 4096u);
  EXPECT_EQ(NumberOf(3), 0u);
  EXPECT_EQ(LoadRelaxed(Peer(1, NetworkDirection::kSend).bytes), 2000u);
  EXPECT_EQ(LoadRelaxed(Peer(2, NetworkDirection::kRecv).bytes), 3000u);
  using enum NetworkState;
  for (const NetworkState state : {kGpu, kPeer, kNetwork, kFlush})
    EXPECT_EQ(LoadRelaxed(Peer(2, NetworkDirection::kRecv).wait_ns[static_cast<size_t>(state)]),
              30u)
        << NameOf(state);
  EXPECT_EQ(Operations(0), 0u);
  ExpectWhole();
}

class NetworkPeersLimit : public NetworkPeersTest, public testing::WithParamInterface<uint32_t> {};

TEST_P(NetworkPeersLimit, CountsPeersAboveItTogether) {
  CountPeers(GetParam());
  for (int round = 0; round < 2; ++round) {
    for (int peer = 0; peer < 100; ++peer) Play(peer, peer % 2 == 0);
  }
  for (uint32_t block = 1; block <= GetParam(); ++block) {
    EXPECT_EQ(NumberOf(block), block);
    EXPECT_EQ(Operations(block), 2u);
  }
  EXPECT_EQ(NumberOf(0), 0u);
  EXPECT_EQ(Operations(0), 2 * (100 - GetParam()));
  ExpectWhole();
}
INSTANTIATE_TEST_SUITE_P(Limits, NetworkPeersLimit, testing::Values(1, 5, 31));

TEST_F(NetworkPeersTest, CountsWithTheOthersAPeerThatIsNoRank) {
  CountPeers(31);
  for (const int peer : {-1, std::numeric_limits<int>::min()}) Play(peer, true);
  Play(std::numeric_limits<int>::max(), true);
  EXPECT_EQ(Operations(0), 2u);
  EXPECT_EQ(NumberOf(1), uint64_t{1} << 31);
  ExpectWhole();
}

TEST_F(NetworkPeersTest, CountsAnOperationForItsPeerHoweverManyAreAnnouncedBeforeItBegins) {
  CountPeers(31);
  const uint32_t first = timer_->Start(true, 7, 1);
  for (int i = 0; i < 100'000; ++i) timer_->Start(true, i % 40, 1);
  PlayStep(first, true, 0);
  timer_->Stop(first);
  EXPECT_EQ(NumberOf(1), 8u);
  EXPECT_EQ(Operations(1), 1u);
  ExpectWhole();
}

TEST_F(NetworkPeersTest, CountsNoneWithoutATable) {
  Play(3, true);
  EXPECT_EQ(NetworkTimerTest::Operations(), 1u);
  EXPECT_EQ(Operations(0) + Operations(1), 0u);
}

TEST_F(NetworkPeersTest, GivesOneBlockToAPeerThatSeveralThreadsMeetAtOnce) {
  for (int round = 0; round < 200; ++round) {
    table_ = std::make_unique<layout::NetworkPeerTable>();
    CountPeers(31);
    const auto meet = [&](int first) {
      for (int i = 0; i < 16; ++i) timer_->peers().BlockOf((first + i) % 16);
    };
    std::thread other(meet, 8);
    meet(0);
    other.join();
    std::set<uint64_t> numbers;
    for (const layout::NetworkPeerBlock& block : table_->blocks)
      numbers.insert(LoadRelaxed(block.number));
    ASSERT_EQ(numbers.size(), 17u) << "16, and that of free blocks";
    ASSERT_EQ(NumberOf(17), 0u);
  }
}

}  // namespace
}  // namespace nccl_exporter::plugin
