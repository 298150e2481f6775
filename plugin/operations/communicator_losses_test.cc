// SPDX-License-Identifier: Apache-2.0
// Records of a communicator for operations that are incomplete, given up, or impossible.
#include <atomic>
#include <thread>

#include "plugin/testing/communicator_fixture.h"

namespace nccl_exporter::plugin {

// Plays one step of a thread that was interrupted before it.
class CommunicatorPeer {
 public:
  static void GiveUp(Communicator& communicator, uint64_t ticket) {
    communicator.GiveUp(communicator.At(ticket), ticket, NowNs());
  }
};

namespace {

TEST_F(CommunicatorTest, CompletesAnOperationOfUnknownChannelsAtFinalize) {
  Open(TimingSource::kKernel);
  RunChannel(communicator_->StartOperation(AllReduce(8, 0)), 0, 1000, 2000);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  communicator_->Finalize();
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  EXPECT_EQ(BusyNs(Function::kAllReduce), 1000u);
}

TEST_F(CommunicatorTest, CountsWhatIsIncompleteAtFinalizeAndStartsAnewWithAllEntriesFree) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t lost = communicator_->StartOperation(AllReduce(8, 2, launch));
  communicator_->StartChannel(lost, 0, 1000);
  communicator_->StartOperation(AllReduce(8, 2));
  communicator_->Finalize();
  EXPECT_EQ(Losses(Loss::kIncompleteAtFinalize), 2u);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  EXPECT_EQ(InFlight(), 0u);
  communicator_->StopChannel(lost, 0);
  EXPECT_EQ(Losses(Loss::kAfterCompletion) + Losses(Loss::kStaleHandle), 1u);
  for (uint64_t i = 0; i < 3 * kOperationEntries; ++i) {
    RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  }
  EXPECT_EQ(Completed(Function::kAllReduce), 3 * kOperationEntries);
  EXPECT_EQ(Losses(Loss::kInFlightFull), 0u);
}

TEST_F(CommunicatorTest, KeepsWhatIsInFlightWhenTheRingIsFullAndCountsTheRest) {
  Open(TimingSource::kKernel);
  const uint64_t hung = communicator_->StartOperation(AllReduce(8, 1));
  for (uint64_t i = 1; i < kOperationEntries + 10; ++i)
    communicator_->StartOperation(AllReduce(8, 1));
  EXPECT_EQ(Losses(Loss::kInFlightFull), 10u);
  EXPECT_EQ(Operations(Function::kAllReduce), kOperationEntries + 10);
  EXPECT_EQ(InFlight(), kOperationEntries);
  RunNext(hung);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
}

TEST_F(CommunicatorTest, GivesUpAnOperationThatLaterOnesHaveOvertakenWhenItsPlaceIsNeeded) {
  Open(TimingSource::kKernel);
  const uint64_t lost = communicator_->StartOperation(AllReduce(8, 1));
  for (uint64_t i = 0; i < kOperationEntries; ++i) {
    RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  }
  EXPECT_EQ(Losses(Loss::kOperationAbandoned), 1u);
  EXPECT_EQ(Losses(Loss::kInFlightFull), 0u);
  EXPECT_EQ(Completed(Function::kAllReduce), kOperationEntries + 1);
  EXPECT_EQ(Timed(Function::kAllReduce), kOperationEntries);
  communicator_->StartChannel(lost, 0, 5000);
  EXPECT_EQ(Losses(Loss::kStaleHandle), 1u);
}

TEST_F(CommunicatorTest, IgnoresEventsOfOperationsThatAreGone) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 1));
  RunChannel(ticket, 0, 1000, 2000);
  RunChannel(ticket, 0, 1000, 2000);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  EXPECT_EQ(Losses(Loss::kAfterCompletion), 3u);
  communicator_->StopChannel(ticket + 1, 0);
  communicator_->StopChannel(ticket + kOperationEntries, 0);
  EXPECT_EQ(Losses(Loss::kStaleHandle), 2u);
}

TEST_F(CommunicatorTest, CountsAStopWithoutStartAndADoubleStop) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 3));
  communicator_->StampChannel(ticket, 0, 1000);
  communicator_->StopChannel(ticket, 0);
  EXPECT_EQ(Losses(Loss::kStopWithoutStart), 2u);
  RunChannel(ticket, 1, 1000, 2000);
  communicator_->StopChannel(ticket, 1);
  EXPECT_EQ(Losses(Loss::kAfterCompletion), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
}

TEST_F(CommunicatorTest, RejectsStampsThatCannotBe) {
  Open(TimingSource::kKernel);
  RunChannel(communicator_->StartOperation(AllReduce(8, 1)), 0, 2000, 1000);
  RunChannel(communicator_->StartOperation(AllReduce(8, 1)), 0, 0, 1000);
  const uint64_t unstamped = communicator_->StartOperation(AllReduce(8, 1));
  communicator_->StartChannel(unstamped, 0, 1000);
  communicator_->StopChannel(unstamped, 0);
  OperationStart bound = AllReduce(8, 1);
  bound.call_is_bound = true;
  RunChannel(communicator_->StartOperation(bound), 0, 1000, 5'000'001'000);
  EXPECT_EQ(Losses(Loss::kStopBeforeStart), 1u);
  EXPECT_EQ(Losses(Loss::kZeroTimestamp), 1u);
  EXPECT_EQ(Losses(Loss::kMissingTimestamp), 1u);
  EXPECT_EQ(Losses(Loss::kLongerThanCpuTime), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), 4u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
}

TEST_F(CommunicatorTest, LeavesAllCollectivesOfALaunchUntimedWhenOneIsRejected) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t good = communicator_->StartOperation(AllReduce(8, 1, launch));
  const uint64_t bad = communicator_->StartOperation(AllReduce(8, 1, launch));
  const uint64_t send = communicator_->StartOperation(PointToPoint(Function::kSend, 8, 1, launch));
  communicator_->CloseLaunch(launch);
  RunChannel(good, 0, 1000, 2000);
  RunChannel(bad, 1, 2000, 1000);
  RunChannel(send, 2, 1000, 2000);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(Timed(Function::kSend), 1u);
}

TEST_F(CommunicatorTest, LeavesTheCompanionsOfAnAbandonedOperationUntimed) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  communicator_->StartOperation(AllReduce(8, 1, launch));  // no event of it ever comes
  RunNext(communicator_->StartOperation(AllReduce(8, 1, launch)));
  communicator_->CloseLaunch(launch);
  for (uint64_t i = 0; i < kOperationEntries; ++i)
    RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(Losses(Loss::kOperationAbandoned), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), kOperationEntries + 2);
  EXPECT_EQ(Timed(Function::kAllReduce), kOperationEntries);
}

// The thread that calls NCCL found the operation running, and is interrupted; it comes to giving it
// up when NCCL's thread has ended it and the end of the launch's other member is about to record
// both. It used to reset the times under the recorder, which then read a start of 0: the longest of
// durations, and drift.
TEST_F(CommunicatorTest, LeavesAnOperationAloneThatHasEndedBeforeItIsGivenUp) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(1 << 20, 1, launch));
  const uint64_t second = communicator_->StartOperation(AllReduce(1 << 20, 1, launch));
  communicator_->CloseLaunch(launch);
  RunChannel(first, 0, 1000, 9000);
  CommunicatorPeer::GiveUp(*communicator_, first);
  RunChannel(second, 1, 1000, 9000);
  EXPECT_EQ(Timed(Function::kAllReduce), 2u);
  EXPECT_EQ(BusyNs(Function::kAllReduce), 8000u);
  EXPECT_EQ(AllLosses(), 0u);
}

// The other order: NCCL's thread goes on to write an operation that was given up in the middle of
// its channels.
TEST_F(CommunicatorTest, ReadsNoPartsOfAnOperationThatWasGivenUpWhileItsChannelsAreReported) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(1 << 20, 2, launch));
  const uint64_t second = communicator_->StartOperation(AllReduce(1 << 20, 1, launch));
  communicator_->CloseLaunch(launch);
  communicator_->StartChannel(first, 0, 1000);
  CommunicatorPeer::GiveUp(*communicator_, first);
  communicator_->StampChannel(first, 0, 2000);
  communicator_->StopChannel(first, 0);
  RunChannel(second, 1, 1000, 9000);
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kOperationAbandoned), 1u);
  EXPECT_EQ(Losses(Loss::kLaunchMemberUntimed), 1u);
  EXPECT_TRUE(communicator_->FollowsOperations());
}

// Two threads, as in a job whose host is a whole ring ahead: one calls and gives up what later
// operations have overtaken, the other lets each second operation run across the one behind it.
TEST_F(CommunicatorTest, RecordsNoTimesOfAnOperationThatAnotherThreadGivesUp) {
  Open(TimingSource::kKernel);
  constexpr uint64_t kOperations = 40'000;
  std::vector<std::atomic<uint64_t>> tickets(kOperations);
  std::atomic<uint64_t> started{0};
  std::thread nccl([&] {
    uint64_t gpu_ns = 1'000'000;
    for (uint64_t i = 0; i + 1 < kOperations; i += 2) {
      while (started.load() < i + 2) std::this_thread::yield();
      const uint64_t first = tickets[i].load();
      const uint64_t second = tickets[i + 1].load();
      if (first != 0) communicator_->StartChannel(first, 0, gpu_ns + 1000);
      if (second != 0) RunChannel(second, 1, gpu_ns + 2000, gpu_ns + 3000);
      if (first != 0) communicator_->StampChannel(first, 0, gpu_ns + 2000);
      if (first != 0) communicator_->StopChannel(first, 0);
      gpu_ns += 10'000;
    }
  });
  for (uint64_t i = 0; i < kOperations; ++i) {
    tickets[i].store(communicator_->StartOperation(AllReduce(1 << 20, 1)));
    started.store(i + 1);
  }
  nccl.join();
  communicator_->Finalize();
  EXPECT_EQ(BusyNs(Function::kAllReduce), 1000 * Timed(Function::kAllReduce));
  EXPECT_EQ(Losses(Loss::kLongerThanCpuTime), 0u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
