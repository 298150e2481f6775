// SPDX-License-Identifier: Apache-2.0
#include "plugin/network/network_timer.h"

#include <gtest/gtest.h>

#include <vector>

#include "plugin/testing/network_timer_fixture.h"

namespace nccl_exporter::plugin {
namespace {

TEST_F(NetworkTimerTest, CountsAnOperationOfEachDirectionWhenItStops) {
  for (const bool is_send : {true, false}) {
    const uint32_t key = timer_->Start(is_send, 5);
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
  for (uint32_t i = 0; i < kOperations; ++i) keys.push_back(timer_->Start(i % 2 == 0, i / 3));
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
  for (int i = 0; i < 10'000; ++i) timer_->Start(false, 3);
  const uint32_t key = timer_->Start(true, 4);
  PlayStep(key, true, 0);
  timer_->Stop(key);
  timer_->Stop(timer_->Start(true, 4));  // called while the bit of steps was off
  EXPECT_EQ(Operations(), 1u);
  for (const LossTraits& loss : kLosses) EXPECT_EQ(Lost(loss.id), 0u) << loss.reason;
}

TEST_F(NetworkTimerTest, RefusesTheOperationThatFindsItsPlaceTakenAndCountsItOnce) {
  const uint32_t first = timer_->Start(true, 1);
  const uint32_t step = StepOf(first, 0);
  for (uint32_t i = 1; i < NetworkTimer::kPlaces; ++i) timer_->Start(true, 1);
  const uint32_t second = timer_->Start(false, 2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(timer_->StartStep(second, 0), NetworkTimer::kNone);
  timer_->Stop(second);
  EXPECT_EQ(Lost(Loss::kNetworkFull), 1u);
  timer_->StopStep(step);
  timer_->Stop(first);
  EXPECT_EQ(Operations(), 1u) << "the first is as it was";
}

TEST_F(NetworkTimerTest, RefusesHandlesOfThePast) {
  const uint32_t key = timer_->Start(true, 1);
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
  const uint32_t cut = timer_->Start(true, 1);
  StepOf(cut, 0);
  timer_->Stop(cut);
  EXPECT_EQ(Lost(Loss::kNetworkIncomplete), 1u);
  const uint32_t late = timer_->Start(true, 1);
  EXPECT_EQ(timer_->StartStep(late, 3), NetworkTimer::kNone);
  timer_->Stop(late);
  const uint32_t odd = timer_->Start(false, 1);
  const uint32_t step = StepOf(odd, 0);
  timer_->NoteStepState(step, kSendWait, 1);  // of a send
  timer_->StopStep(step);
  timer_->Stop(odd);
  EXPECT_EQ(Lost(Loss::kNetworkStepMismatch), 2u);
  EXPECT_EQ(Operations(), 0u);
}

TEST_F(NetworkTimerTest, GivesUpAtFinalizeWhatHasNotEnded) {
  const uint32_t key = timer_->Start(true, 1);
  const uint32_t step = StepOf(key, 0);
  timer_->Finalize();
  EXPECT_EQ(Lost(Loss::kNetworkIncomplete), 1u);
  timer_->NoteStepState(step, kSendWait, 1000);
  timer_->StopStep(step);
  timer_->Stop(key);
  EXPECT_EQ(Operations(), 0u);
  timer_->Open(slot_.get(), header_.get(), &windows_);
  const uint32_t next = timer_->Start(true, 1);
  PlayStep(next, true, 0);
  timer_->Stop(next);
  EXPECT_EQ(Operations(), 1u);
}

// A thread that found the timer before its communicator was finalized.
TEST_F(NetworkTimerTest, TakesNoPlaceOnceItsCommunicatorIsFinalized) {
  const uint32_t late = timer_->Start(true, 1);
  timer_->Finalize();
  EXPECT_EQ(timer_->StartStep(late, 0), NetworkTimer::kNone);
  EXPECT_EQ(Lost(Loss::kStaleHandle), 1u);
  timer_->Open(slot_.get(), header_.get(), &windows_);
  for (uint32_t i = 0; i < NetworkTimer::kPlaces; ++i)
    EXPECT_NE(timer_->StartStep(timer_->Start(true, 2), 0), NetworkTimer::kNone);
  timer_->Finalize();
  EXPECT_EQ(Lost(Loss::kNetworkIncomplete), NetworkTimer::kPlaces);
}

TEST_F(NetworkTimerTest, CountsTheTimeOfStepsThatCarryNothing) {
  const uint32_t key = timer_->Start(true, 5);
  const uint32_t step = StepOf(key, 0);
  timer_->NoteStepState(step, kSendWait, 0);
  Advance(10);
  timer_->StopStep(step);
  timer_->Stop(key);
  EXPECT_EQ(Waited(NetworkDirection::kSend, NetworkState::kNetwork), 10u);
  EXPECT_EQ(LoadRelaxed(Block(NetworkDirection::kSend).operations), 1u);
  EXPECT_EQ(LoadRelaxed(Block(NetworkDirection::kSend).bytes), 0u);
}

TEST_F(NetworkTimerTest, TakesCallsThatAreAskedAboutAndReplaysThatAreLaunchedInAWindow) {
  NetworkWindows windows{};
  constexpr TimeWindows kTenth{.period_ns = 2'000'000'000, .share_ppm = 100'000};
  windows.Open(&mask_, 7, 16, nullptr, kTenth);
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
  const uint32_t key = timer_->Start(true, 9);
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

}  // namespace
}  // namespace nccl_exporter::plugin
