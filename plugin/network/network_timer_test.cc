// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_timer.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "plugin/network/scripted_clock.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int kPeer = 3;
constexpr int kSendWait = 9, kRecvWait = 10, kRecvFlushWait = 11, kRecvGpuWait = 12, kPeerWait = 20;

class NetworkTimerTest : public testing::Test {
 protected:
  NetworkTimerTest() {
    windows_.Open(&mask_, {7, 7, 7, 7}, {.period_ns = 1000, .window_ns = 1000});
    timer_->Open(slot_.get(), header_.get(), &windows_);
  }
  static void Advance(uint64_t ns) { ScriptedClock::now_ns += ns; }
  uint32_t StepOf(uint32_t key, uint32_t step) {
    return static_cast<uint32_t>(timer_->StartStep(key, step));
  }
  // 10 ns in each state.
  void PlayStep(uint32_t key, bool is_send, uint32_t step) {
    const uint32_t number = StepOf(key, step);
    Advance(10);
    if (is_send) {
      timer_->NoteStepState(number, kPeerWait, 0);
      Advance(10);
      timer_->NoteStepState(number, kPeerWait, 0);
      timer_->NoteStepState(number, kSendWait, 1000);
    } else {
      timer_->StartStep(key, step);
      timer_->NoteStepState(number, kRecvWait, 7);
      Advance(10);
      timer_->NoteStepState(number, kRecvFlushWait, 1000);
      Advance(10);
      timer_->NoteStepState(number, kRecvGpuWait, 7);
    }
    Advance(10);
    timer_->StopStep(number);
  }
  uint64_t Waited(NetworkDirection direction, NetworkState state) const {
    return LoadRelaxed(Block(direction).wait_ns[static_cast<size_t>(state)]);
  }
  const layout::NetworkDirectionBlock& Block(NetworkDirection direction) const {
    return slot_->network.directions[static_cast<size_t>(direction)];
  }
  uint64_t Lost(Loss loss) const { return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]); }
  uint64_t Operations() const {
    return LoadRelaxed(Block(NetworkDirection::kSend).operations) +
           LoadRelaxed(Block(NetworkDirection::kRecv).operations);
  }

  int mask_ = 7;
  NetworkWindows windows_{};
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<NetworkTimer> timer_ = std::make_unique<NetworkTimer>();
};

TEST_F(NetworkTimerTest, CountsAnOperationOfEachDirectionWhenItStops) {
  for (const bool is_send : {true, false}) {
    const uint32_t key = timer_->Start(is_send, kPeer, 5);
    for (uint32_t step = 0; step < 300; ++step) PlayStep(key, is_send, step);
    timer_->Stop(key);
  }
  constexpr auto kSend = NetworkDirection::kSend, kRecv = NetworkDirection::kRecv;
  using enum NetworkState;
  for (const NetworkState state : {kGpu, kPeer, kNetwork}) EXPECT_EQ(Waited(kSend, state), 3000u);
  EXPECT_EQ(Waited(kSend, kFlush), 0u);
  for (const NetworkState state : {kGpu, kPeer, kNetwork, kFlush})
    EXPECT_EQ(Waited(kRecv, state), 3000u) << NameOf(state);
  for (const NetworkDirection direction : {kSend, kRecv}) {
    EXPECT_EQ(LoadRelaxed(Block(direction).bytes), 300'000u);
    EXPECT_EQ(LoadRelaxed(Block(direction).operations), 1u);
  }
  for (const LossTraits& loss : kLosses) EXPECT_EQ(Lost(loss.id), 0u) << loss.reason;
  EXPECT_EQ(LoadRelaxed(slot_->network.share_ppm), 1'000'000u);
}

TEST_F(NetworkTimerTest, KeepsOperationsApartThatInterleave) {
  constexpr uint32_t kOperations = NetworkTimer::kPlaces;
  std::vector<uint32_t> keys, steps;
  for (uint32_t i = 0; i < kOperations; ++i)
    keys.push_back(timer_->Start(i % 2 == 0, kPeer, i / 3));
  for (const uint32_t key : keys) steps.push_back(StepOf(key, 0));
  for (uint32_t i = 0; i < kOperations; ++i) {
    timer_->NoteStepState(steps[i], i % 2 == 0 ? kSendWait : kRecvFlushWait, i);
    timer_->StopStep(steps[i]);
  }
  for (const uint32_t key : keys) timer_->Stop(key);
  EXPECT_EQ(Operations(), kOperations);
  EXPECT_EQ(LoadRelaxed(Block(NetworkDirection::kSend).bytes), 256u * 255);
  EXPECT_EQ(LoadRelaxed(Block(NetworkDirection::kRecv).bytes), 256u * 256);
}

TEST_F(NetworkTimerTest, TakesNoPlaceForOperationsWithoutSteps) {
  for (int i = 0; i < 10'000; ++i) timer_->Start(false, kPeer, 3);
  const uint32_t key = timer_->Start(true, kPeer, 4);
  PlayStep(key, true, 0);
  timer_->Stop(key);
  timer_->Stop(timer_->Start(true, kPeer, 4));  // called while the bit of steps was off
  EXPECT_EQ(Operations(), 1u);
  for (const LossTraits& loss : kLosses) EXPECT_EQ(Lost(loss.id), 0u) << loss.reason;
}

TEST_F(NetworkTimerTest, RefusesTheOperationThatFindsItsPlaceTakenAndCountsItOnce) {
  const uint32_t first = timer_->Start(true, kPeer, 1);
  const uint32_t step = StepOf(first, 0);
  for (uint32_t i = 1; i < NetworkTimer::kPlaces; ++i) timer_->Start(true, kPeer, 1);
  const uint32_t second = timer_->Start(false, kPeer, 2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(timer_->StartStep(second, 0), NetworkTimer::kNone);
  timer_->Stop(second);
  EXPECT_EQ(Lost(Loss::kNetworkFull), 1u);
  timer_->StopStep(step);
  timer_->Stop(first);
  EXPECT_EQ(Operations(), 1u) << "the first is as it was";
}

TEST_F(NetworkTimerTest, RefusesHandlesOfThePast) {
  const uint32_t key = timer_->Start(true, kPeer, 1);
  const uint32_t step = StepOf(key, 0);
  timer_->StopStep(step);
  timer_->StopStep(step);
  timer_->NoteStepState(step, kSendWait, 1);
  EXPECT_EQ(Lost(Loss::kStaleHandle), 2u);
  timer_->Stop(key);
  timer_->Stop(key);
  EXPECT_EQ(Lost(Loss::kStaleHandle), 3u);
  EXPECT_EQ(timer_->StartStep(key, 1), NetworkTimer::kNone);
  timer_->StopStep(step);
  EXPECT_EQ(Lost(Loss::kStaleHandle), 5u);
  EXPECT_EQ(Operations(), 1u);
  EXPECT_EQ(LoadRelaxed(Block(NetworkDirection::kSend).bytes), 0u);
}

TEST_F(NetworkTimerTest, CountsNothingOfAnOperationWhoseStepsAreNotWhole) {
  const uint32_t cut = timer_->Start(true, kPeer, 1);
  StepOf(cut, 0);
  timer_->Stop(cut);
  EXPECT_EQ(Lost(Loss::kNetworkIncomplete), 1u);
  const uint32_t late = timer_->Start(true, kPeer, 1);
  EXPECT_EQ(timer_->StartStep(late, 3), NetworkTimer::kNone);
  timer_->Stop(late);
  const uint32_t odd = timer_->Start(false, kPeer, 1);
  const uint32_t step = StepOf(odd, 0);
  timer_->NoteStepState(step, kSendWait, 1);  // of a send
  timer_->StopStep(step);
  timer_->Stop(odd);
  EXPECT_EQ(Lost(Loss::kNetworkStepMismatch), 2u);
  EXPECT_EQ(Operations(), 0u);
}

TEST_F(NetworkTimerTest, GivesUpAtFinalizeWhatHasNotEnded) {
  const uint32_t key = timer_->Start(true, kPeer, 1);
  const uint32_t step = StepOf(key, 0);
  timer_->Finalize();
  EXPECT_EQ(Lost(Loss::kNetworkIncomplete), 1u);
  timer_->NoteStepState(step, kSendWait, 1000);
  timer_->StopStep(step);
  timer_->Stop(key);
  EXPECT_EQ(Operations(), 0u);
  timer_->Open(slot_.get(), header_.get(), &windows_);
  const uint32_t next = timer_->Start(true, kPeer, 1);
  PlayStep(next, true, 0);
  timer_->Stop(next);
  EXPECT_EQ(Operations(), 1u);
}

TEST_F(NetworkTimerTest, TakesCallsThatAreAskedAboutAndReplaysThatAreLaunchedInAWindow) {
  NetworkWindows windows{};
  constexpr SamplingWindows kTenth{.period_ns = 2'000'000'000, .window_ns = 200'000'000};
  windows.Open(&mask_, {7, 7, 7, 7}, kTenth);
  windows.Join();
  timer_->Open(slot_.get(), header_.get(), &windows);
  int changes = 0;
  bool was_open = false;
  for (int launch = 0; launch < 10'000; ++launch) {
    Advance(10'000'000);
    timer_->BeginLaunch();
    windows.Note(ScriptedClock::now_ns);  // in mid-launch
    EXPECT_TRUE(timer_->Takes(true));
    EXPECT_EQ(timer_->Takes(false), was_open);
    changes += windows.IsOpen() != was_open ? 1 : 0;
    was_open = windows.IsOpen();
  }
  EXPECT_GT(changes, 50);
  while (windows.IsOpen()) windows.Note(ScriptedClock::now_ns += 10'000'000);
  timer_->BeginLaunch();
  windows.NoteCapture();
  EXPECT_FALSE(timer_->Takes(true)) << "it is asked about because something else is captured";
}

TEST_F(NetworkTimerTest, SeesUpTo226APeerThatGivesNoCreditOnTheOperation) {
  constexpr int kSendPosted = 0, kSendRemFifoWait = 1, kSendTransmitted = 2, kSendDone = 3;
  const uint32_t key = timer_->Start(true, kPeer, 9);
  for (uint32_t step = 0; step < 100; ++step) {
    const uint32_t number = StepOf(key, step);
    const int come = static_cast<int>(step) + 1;
    const uint64_t sum = 4242 + 1000 * step;
    timer_->NoteOperationState(key, kSendPosted, sum, come);
    Advance(10);
    timer_->NoteOperationState(key, kSendRemFifoWait, sum, come);
    Advance(20);
    timer_->NoteOperationState(key, kSendRemFifoWait, sum, come);
    timer_->NoteOperationState(key, kSendTransmitted, sum + 1000, come);
    timer_->NoteStepState(number, kSendWait, 0);
    Advance(30);
    timer_->StopStep(number);
    timer_->NoteOperationState(key, kSendDone, sum + 1000, come);
  }
  timer_->Stop(key);
  using enum NetworkState;
  EXPECT_EQ(Waited(NetworkDirection::kSend, kGpu), 1000u);
  EXPECT_EQ(Waited(NetworkDirection::kSend, kPeer), 2000u);
  EXPECT_EQ(Waited(NetworkDirection::kSend, kNetwork), 3000u);
  EXPECT_EQ(LoadRelaxed(Block(NetworkDirection::kSend).bytes), 100'000u);
}

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
