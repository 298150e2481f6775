// SPDX-License-Identifier: Apache-2.0
// Times of a communicator that wait for proof.
#include <deque>

#include "plugin/testing/communicator_fixture.h"

namespace nccl_exporter::plugin {
namespace {

// The host has announced 100 operations before the first one's times are read.
TEST_F(CommunicatorTest, KeepsTimesBackWhileTheHostIsFarAheadUntilLaterOnesAgree) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i)
    tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  RunNext(tickets[0]);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).completed), 1u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  for (size_t i = 1; i < tickets.size(); ++i) RunNext(tickets[i]);
  EXPECT_EQ(Timed(Function::kAllReduce), 100u);
}

TEST_F(CommunicatorTest, DropsTimesThatLaterOnesContradictWhileTheHostIsFarAhead) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i)
    tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  gpu_ns_ += 1'000'000'000;  // those of later operations
  RunNext(tickets[0]);
  RunNext(tickets[1]);
  gpu_ns_ -= 1'000'000'000;
  RunNext(tickets[2]);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 2u);
  for (size_t i = 3; i < tickets.size(); ++i) RunNext(tickets[i]);
  EXPECT_EQ(Timed(Function::kAllReduce), 98u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 2u);
  EXPECT_TRUE(communicator_->FollowsOperations()) << "no drift";
}

TEST_F(CommunicatorTest, DropsWhatItHoldsWhenItIsFinalized) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i)
    tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  RunNext(tickets[0]);
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 1u);
}

// House rule: a slot is used again. What could not be dropped at finalize is not the next
// communicator's.
TEST_F(CommunicatorTest, DoesNotHandOverTimesItHoldsToTheNextCommunicatorOfItsSlot) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i)
    tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  for (int i = 0; i < 30; ++i) RunNext(tickets[static_cast<size_t>(i)]);
  Open(TimingSource::kKernel);  // as after a finalize that did not get the lock, whose holder is
                                // interrupted
  RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  EXPECT_EQ(Timed(Function::kAllReduce), 1u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 30u);
}

TEST_F(CommunicatorTest, DropsTheOldestTimesThatItHoldsWhenThereAreTooMany) {
  Open(TimingSource::kKernel);
  std::deque<uint64_t> tickets;
  for (uint64_t i = 0; i < UnconfirmedTimes::kCapacity + 150; ++i) {
    tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
    if (tickets.size() < 100) continue;
    RunNext(tickets.front());
    tickets.pop_front();
  }
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 51u);
  for (const uint64_t ticket : tickets) RunNext(ticket);
  for (int i = 0; i < 30; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  const uint64_t total = UnconfirmedTimes::kCapacity + 180;
  EXPECT_EQ(Timed(Function::kAllReduce) + Losses(Loss::kRingOverrun), total);
  EXPECT_LT(Losses(Loss::kRingOverrun), 200u);
}

// Nothing says that a thousand operations that ran unseen did not overrun what was read before
// them.
TEST_F(CommunicatorTest, DoesNotBelieveTimesAcrossManyOperationsThatItDidNotFollow) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < kOperationEntries; ++i)
    tickets.push_back(communicator_->StartOperation(AllReduce(8, 1)));
  for (int i = 0; i < 10; ++i) RunNext(tickets[static_cast<size_t>(i)]);
  for (int i = 0; i < 200; ++i)
    communicator_->StartOperation(AllReduce(8, 1));  // 10 of them find a place
  RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
}

TEST_F(CommunicatorTest, HoldsTheTimesOfAReleaseOnProbationUntilManyAgreeWithTheCpu) {
  communicator_->Open({TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {}, true});
  for (uint32_t i = 1; i < LaunchRecorder::kProbationLaunches; ++i) {
    RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  }
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(LoadRelaxed(slot_->probation_launches), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), LaunchRecorder::kProbationLaunches - 1);
  for (int i = 0; i < 10; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  EXPECT_EQ(Timed(Function::kAllReduce), LaunchRecorder::kProbationLaunches + 9);
  EXPECT_EQ(LoadRelaxed(slot_->probation_launches), 0u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, DropsTheTimesOfAReleaseThatFailsItsProbation) {
  communicator_->Open({TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {}, true});
  for (int i = 0; i < 10; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  OperationStart late = AllReduce(1 << 20, 1);
  late.call_is_bound = true;
  RunChannel(communicator_->StartOperation(late), 0, gpu_ns_, gpu_ns_ + 5'000'000'000);
  EXPECT_FALSE(communicator_->FollowsOperations());
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kDrift), 10u);
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kContradiction));
}

TEST_F(CommunicatorTest, ShowsTheFirstCauseThatEndedItsTiming) {
  communicator_->Open(
      {TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {.hides_parts = true}});
  communicator_->StartOperation(AllReduce(8, 1));
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kNone));
  OperationStart to_self = PointToPoint(Function::kSend, 1 << 20, 1);
  to_self.peer = 2;
  to_self.is_to_self = true;
  communicator_->StartOperation(to_self);
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kMessageToSelf));
  communicator_->EndKernelTiming(TimingReason::kMaskOverride);
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kMessageToSelf));
}

TEST_F(CommunicatorTest, CountsTheTimesThatItHoldsForAReleaseOnProbationByThatCause) {
  communicator_->Open({TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {}, true});
  for (int i = 0; i < 10; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kUnproven), 10u);
}

TEST_F(CommunicatorTest, TakesWhatItCouldNotFollowForCompleteOnceALaterOperationIs) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < kOperationEntries; ++i)
    tickets.push_back(communicator_->StartOperation(AllReduce(8, 1)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(communicator_->StartOperation(AllReduce(8, 1)), 0u);
  EXPECT_EQ(Losses(Loss::kInFlightFull), 3u);
  for (const uint64_t ticket : tickets) RunNext(ticket);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).completed), kOperationEntries);
  RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).completed), kOperationEntries + 4);
  EXPECT_EQ(Operations(Function::kAllReduce), kOperationEntries + 4);
}

}  // namespace
}  // namespace nccl_exporter::plugin
