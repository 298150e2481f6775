// SPDX-License-Identifier: Apache-2.0
// Records of a communicator for operations that NCCL reports as it should.
#include <chrono>
#include <thread>
#include <vector>

#include "plugin/testing/communicator_fixture.h"

namespace nccl_exporter::plugin {
namespace {

TEST_F(CommunicatorTest, TimesAnOperationFromItsFirstStartToItsLastStop) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(1 << 20, 2));
  communicator_->StartChannel(ticket, 4, 1'000'500);
  communicator_->StartChannel(ticket, 5, 1'000'000);
  communicator_->StampChannel(ticket, 4, 1'002'000);
  communicator_->StopChannel(ticket, 4);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  EXPECT_EQ(InFlight(), 1u);
  communicator_->StampChannel(ticket, 5, 1'003'000);
  communicator_->StopChannel(ticket, 5);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  EXPECT_EQ(BusyNs(Function::kAllReduce), 3000u);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).duration[DurationBuckets::IndexOf(3000)]), 1u);
  EXPECT_EQ(InFlight(), 0u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, CountsBusBandwidthOfLargeCollectivesThatRanAlone) {
  Open(TimingSource::kKernel);
  RunChannel(communicator_->StartOperation(AllReduce(1 << 20, 1)), 0, 1000, 11'000);
  const uint64_t bandwidth = BusBandwidth(Function::kAllReduce, 1 << 20, 8, 10'000);
  EXPECT_EQ(
      LoadRelaxed(Block(Function::kAllReduce).bandwidth[BandwidthBuckets::IndexOf(bandwidth)]), 1u);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).bandwidth_sum_kib), (bandwidth + 512) / 1024);
  RunChannel(communicator_->StartOperation(AllReduce((1 << 20) - 1, 1)), 0, 20'000, 30'000);
  EXPECT_EQ(BandwidthCount(Function::kAllReduce), 1u);
}

TEST_F(CommunicatorTest, CountsDurationsByFunctionAndSizeToo) {
  Open(TimingSource::kKernel);
  RunChannel(communicator_->StartOperation(AllReduce(8, 1)), 0, 1000, 3000);
  RunChannel(communicator_->StartOperation(AllReduce(1 << 20, 1)), 0, 10'000, 15'000);
  RunChannel(communicator_->StartOperation(AllReduce(9, 1)), 0, 20'000, 22'000);
  const layout::SizeHistogram& small = slot_->size_histograms[0];
  EXPECT_EQ(LoadRelaxed(small.owner), layout::SizeHistogramOwner(Function::kAllReduce, 0));
  EXPECT_EQ(LoadRelaxed(small.duration[DurationBuckets::IndexOf(2000)]), 2u);
  const layout::SizeHistogram& large = slot_->size_histograms[1];
  EXPECT_EQ(LoadRelaxed(large.owner), layout::SizeHistogramOwner(Function::kAllReduce, 3));
  EXPECT_EQ(LoadRelaxed(large.duration[DurationBuckets::IndexOf(5000)]), 1u);
  EXPECT_EQ(LoadRelaxed(slot_->size_histograms[2].owner), 0u);
}

TEST_F(CommunicatorTest, TimesAnOperationForWhoseSizeThereIsNoHistogram) {
  Open(TimingSource::kKernel);
  int pairs = 0;
  for (const Function function : {Function::kBroadcast, Function::kAllReduce}) {
    for (int size_class = 0; size_class < kSizeClassCount; ++size_class, ++pairs) {
      OperationStart start = AllReduce(kSizeClassBounds[static_cast<size_t>(size_class)], 1);
      start.function = function;
      RunNext(communicator_->StartOperation(start));
      EXPECT_EQ(InSizeHistogram(function, size_class), pairs < layout::kSizeHistograms ? 1u : 0u);
    }
  }
  ASSERT_GT(pairs, layout::kSizeHistograms);
  EXPECT_EQ(Timed(Function::kAllReduce), uint64_t{kSizeClassCount});
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).duration[DurationBuckets::IndexOf(1000)]),
            uint64_t{kSizeClassCount});
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, GivesTheNextCommunicatorOfASlotHistogramsOfItsOwn) {
  Open(TimingSource::kKernel);
  RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  communicator_->Finalize();
  slot_ = std::make_unique<layout::CommunicatorSlot>();
  communicator_ = std::make_unique<Communicator>();
  Open(TimingSource::kKernel);
  RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(LoadRelaxed(slot_->size_histograms[0].owner),
            layout::SizeHistogramOwner(Function::kAllReduce, 0));
  EXPECT_EQ(InSizeHistogram(Function::kAllReduce, 0), 1u);
}

TEST_F(CommunicatorTest, RecordsALaunchWhenItIsClosedAndAllItsMembersAreDone) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(3 << 20, 1, launch));
  RunChannel(first, 0, 1000, 9000);  // done before the launch's other member is announced
  const uint64_t second = communicator_->StartOperation(AllReduce(1 << 20, 1, launch));
  communicator_->CloseLaunch(launch);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  RunChannel(second, 1, 1000, 9000);
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(BusyNs(Function::kAllReduce), 8000u);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).duration[DurationBuckets::IndexOf(6000)]), 1u);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).duration[DurationBuckets::IndexOf(2000)]), 1u);
  EXPECT_EQ(BandwidthCount(Function::kAllReduce), 0u);
}

TEST_F(CommunicatorTest, CountsAnOpOnceWhenChannelsFinishBeforeTheLaunchIsClosed) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  RunChannel(communicator_->StartOperation(AllReduce(8, 1, launch)), 0, 1000, 2000);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  communicator_->CloseLaunch(launch);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  communicator_->CloseLaunch(launch);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
}

TEST_F(CommunicatorTest, TimesASendAndAReceiveOfOneLaunchApart) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t send =
      communicator_->StartOperation(PointToPoint(Function::kSend, 4096, 1, launch));
  const uint64_t receive =
      communicator_->StartOperation(PointToPoint(Function::kRecv, 4096, 1, launch));
  communicator_->CloseLaunch(launch);
  RunChannel(send, 0, 5000, 7000);
  RunChannel(receive, 0, 5000, 7000);
  EXPECT_EQ(BusyNs(Function::kSend), 2000u);
  EXPECT_EQ(BusyNs(Function::kRecv), 2000u);
}

TEST_F(CommunicatorTest, CompletesAShortOperationWhenALaterOneHasTakenOverItsChannelsAndRun) {
  Open(TimingSource::kKernel);
  const uint64_t first = communicator_->StartOperation(PointToPoint(Function::kSend, 100, 16));
  RunChannel(first, 3, 1000, 2000);
  RunChannel(first, 4, 1000, 2500);
  const uint64_t second = communicator_->StartOperation(PointToPoint(Function::kSend, 100, 16));
  communicator_->StartChannel(second, 3, 3000);
  communicator_->StartChannel(second, 4, 3000);
  EXPECT_EQ(Completed(Function::kSend), 0u);
  RunChannel(first, 5, 1000, 2800);  // another channel, reported later
  communicator_->StartChannel(second, 5, 3000);
  for (uint32_t channel = 3; channel <= 5; ++channel) {
    communicator_->StampChannel(second, channel, 4000);
    communicator_->StopChannel(second, channel);
  }
  EXPECT_EQ(Completed(Function::kSend), 1u);
  EXPECT_EQ(BusyNs(Function::kSend), 1800u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, DoesNotTakeACompanionInTheSameLaunchForALaterOperation) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first =
      communicator_->StartOperation(PointToPoint(Function::kSend, 100, 16, launch));
  const uint64_t second =
      communicator_->StartOperation(PointToPoint(Function::kSend, 100, 1, launch));
  communicator_->CloseLaunch(launch);
  RunChannel(first, 0, 1000, 2000);
  RunChannel(second, 0, 1000, 2000);
  RunChannel(first, 1, 1000, 3000);
  EXPECT_EQ(Completed(Function::kSend), 0u);
  RunChannel(communicator_->StartOperation(PointToPoint(Function::kSend, 100, 2)), 0, 5000, 6000);
  EXPECT_EQ(Completed(Function::kSend), 0u);
  RunChannel(communicator_->StartOperation(PointToPoint(Function::kSend, 100, 1)), 1, 7000, 8000);
  EXPECT_EQ(Completed(Function::kSend), 3u);
  EXPECT_EQ(BusyNs(Function::kSend), 2000u + 1000u);
}

TEST_F(CommunicatorTest, CountsACollectiveWithFewerChannelsThanAnnouncedAndDoesNotTimeIt) {
  Open(TimingSource::kKernel);
  RunChannel(communicator_->StartOperation(AllReduce(8, 2)), 0, 1000, 2000);
  for (int i = 0; i < 63; ++i) RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(Completed(Function::kAllReduce), 63u) << "the second channel may be late";
  RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(Completed(Function::kAllReduce), 65u);
  EXPECT_EQ(Losses(Loss::kChannelsMissing), 1u);
  EXPECT_EQ(Timed(Function::kAllReduce), 64u) << "the second channel may have run longer";
}

TEST_F(CommunicatorTest, EndsAndTimesWhatIsCarriedWithTheOperationThatCarriesIt) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(3000, 1, launch));
  OperationStart carried = AllReduce(1000, 0, launch);
  carried.is_symmetric = carried.is_carried = true;
  communicator_->StartOperation(carried);
  communicator_->CloseLaunch(launch);
  EXPECT_EQ(InFlight(), 2u);
  RunChannel(first, 0, 1000, 5000);
  EXPECT_EQ(InFlight(), 0u);
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(Timed(Function::kAllReduce), 2u);
  EXPECT_EQ(BusyNs(Function::kAllReduce), 3000u + 1000u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, LeavesWhatIsCarriedUntimedWithTheOperationThatCarriesIt) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(3000, 1, launch));
  OperationStart carried = AllReduce(1000, 0, launch);
  carried.is_symmetric = carried.is_carried = true;
  communicator_->StartOperation(carried);
  communicator_->CloseLaunch(launch);
  RunChannel(first, 0, 5000, 1000);
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kStopBeforeStart), 1u);
  EXPECT_EQ(Losses(Loss::kLaunchMemberUntimed), 1u);
}

TEST_F(CommunicatorTest, CompletesASendToSelfUntimedAndDoesNotHoldItsLaunch) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  OperationStart self = PointToPoint(Function::kSend, 100, 4, launch);
  self.has_no_parts = true;
  communicator_->StartOperation(self);
  const uint64_t other =
      communicator_->StartOperation(PointToPoint(Function::kSend, 100, 1, launch));
  communicator_->CloseLaunch(launch);
  RunChannel(other, 0, 1000, 2000);
  EXPECT_EQ(Completed(Function::kSend), 2u);
  EXPECT_EQ(Timed(Function::kSend), 1u);
  EXPECT_EQ(BusyNs(Function::kSend), 1000u);
}

TEST_F(CommunicatorTest, CompletesByProxyOperationsWhenThoseOfALaterLaunchCome) {
  Open(TimingSource::kProxy);
  const uint64_t first = communicator_->StartOperation(AllReduce(8, 4));
  ASSERT_TRUE(communicator_->StartProxy(first));
  communicator_->StopProxy(first);
  ASSERT_TRUE(communicator_->StartProxy(first));  // appended after the first was done
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  const uint64_t second = communicator_->StartOperation(AllReduce(8, 4));
  ASSERT_TRUE(communicator_->StartProxy(second));
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  communicator_->StopProxy(first);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  communicator_->StopProxy(second);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  communicator_->Finalize();
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(AllLosses(), 0u);
}

// Regression, operator's trial A2: an AllReduce of 8 bytes took 124 ms, because its proxy
// operations waited for those before it.
TEST_F(CommunicatorTest, ProxyOperationsGiveNoDurations) {
  Open(TimingSource::kProxy);
  for (int i = 0; i < 3; ++i) {
    const uint64_t launch = communicator_->OpenLaunch();
    const uint64_t in_group = communicator_->StartOperation(AllReduce(8, 4, launch));
    communicator_->CloseLaunch(launch);
    const uint64_t alone = communicator_->StartOperation(AllReduce(8, 4));
    for (const uint64_t ticket : {in_group, alone}) communicator_->StartProxy(ticket);
    for (const uint64_t ticket : {in_group, alone}) communicator_->StopProxy(ticket);
  }
  communicator_->Finalize();
  EXPECT_EQ(Completed(Function::kAllReduce), 6u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(BusyNs(Function::kAllReduce), 0u);
  EXPECT_EQ(LoadRelaxed(slot_->completions[0].ticket), 0u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, DoesNotTakeProxyOperationsOfACompanionForThoseOfALaterLaunch) {
  Open(TimingSource::kProxy);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t send = communicator_->StartOperation(PointToPoint(Function::kSend, 8, 4, launch));
  const uint64_t receive =
      communicator_->StartOperation(PointToPoint(Function::kRecv, 8, 4, launch));
  communicator_->CloseLaunch(launch);
  ASSERT_TRUE(communicator_->StartProxy(send));
  communicator_->StopProxy(send);
  ASSERT_TRUE(communicator_->StartProxy(receive));
  ASSERT_TRUE(communicator_->StartProxy(send));  // a second channel
  communicator_->StopProxy(send);
  communicator_->StopProxy(receive);
  communicator_->Finalize();
  EXPECT_EQ(Completed(Function::kSend), 1u);
  EXPECT_EQ(Completed(Function::kRecv), 1u);
  EXPECT_EQ(AllLosses(), 0u);
}

// Regression: a queued send was over once a receive, on a connection of its own, had begun.
TEST_F(CommunicatorTest, KeepsWhatIsQueuedBehindOthersUntilALaterOneIsDone) {
  Open(TimingSource::kProxy);
  const auto send = [&] {
    const uint64_t ticket = communicator_->StartOperation(PointToPoint(Function::kSend, 8, 4));
    EXPECT_TRUE(communicator_->QueueProxy(ticket));
    return ticket;
  };
  const uint64_t first = send(), second = send(), third = send();
  EXPECT_TRUE(communicator_->QueueProxy(third));  // on two connections
  const uint64_t receive = communicator_->StartOperation(PointToPoint(Function::kRecv, 8, 4));
  ASSERT_TRUE(communicator_->QueueProxy(receive));
  communicator_->BeginProxy(first);
  communicator_->BeginProxy(receive);
  communicator_->BeginProxy(third);
  std::this_thread::sleep_for(std::chrono::milliseconds(1001));  // kQuietNs
  communicator_->StopProxy(first);
  EXPECT_EQ(Completed(Function::kSend), 1u);
  communicator_->BeginProxy(second);
  communicator_->StopProxy(second);
  communicator_->StopProxy(third);
  EXPECT_EQ(Completed(Function::kSend), 2u);
  communicator_->BeginProxy(third);
  communicator_->StopProxy(third);
  communicator_->StopProxy(receive);
  EXPECT_EQ(Completed(Function::kSend), 3u);
  EXPECT_EQ(Completed(Function::kRecv), 0u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, KeepsWhatIsQueuedThoughTheRingIsFull) {
  Open(TimingSource::kProxy);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < kOperationEntries; ++i) {
    tickets.push_back(communicator_->StartOperation(AllReduce(8, 4)));
    ASSERT_TRUE(communicator_->QueueProxy(tickets.back()));
  }
  communicator_->BeginProxy(tickets[0]);
  communicator_->BeginProxy(tickets[9]);
  communicator_->StartOperation(AllReduce(8, 4));
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  EXPECT_EQ(AllLosses(), 1u) << "the ring is full";
}

TEST_F(CommunicatorTest, LetsGoOfOperationsThatNeverReachTheNetworkWithoutCountingALoss) {
  Open(TimingSource::kProxy);
  for (uint64_t i = 0; i < 2 * kOperationEntries; ++i)
    communicator_->StartOperation(AllReduce(8, 4));
  EXPECT_EQ(Operations(Function::kAllReduce), 2 * kOperationEntries);
  communicator_->Finalize();
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, CountsWithoutFollowingWhenNothingTimes) {
  Open(TimingSource::kNone);
  EXPECT_EQ(communicator_->StartOperation(AllReduce(5000, 4)), 0u);
  EXPECT_EQ(Operations(Function::kAllReduce), 1u);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).started.bytes[1]), 5000u);
  EXPECT_EQ(InFlight(), 0u);
}

TEST_F(CommunicatorTest, KeepsTheRingOfRecentCompletionsInOrder) {
  Open(TimingSource::kKernel);
  const uint64_t total = layout::kCompletionEntries + 5;
  for (uint64_t i = 1; i <= total; ++i) {
    OperationStart start = AllReduce(8, 1);
    start.sequence = i;
    RunChannel(communicator_->StartOperation(start), 0, 1000 * i, 1000 * i + 10);
  }
  for (uint64_t ticket = total; ticket > total - layout::kCompletionEntries; --ticket) {
    const layout::CompletionEntry& entry =
        slot_->completions[(ticket - 1) % layout::kCompletionEntries];
    EXPECT_EQ(LoadRelaxed(entry.ticket), ticket);
    EXPECT_EQ(LoadRelaxed(entry.function_and_sequence), uint64_t{4} << 56 | ticket);
    EXPECT_EQ(LoadRelaxed(entry.start_ns), 1000 * ticket);
    EXPECT_EQ(LoadRelaxed(entry.stop_ns), 1000 * ticket + 10);
  }
}

TEST_F(CommunicatorTest, LearnsAnIdentityThatIsNotKnownOnce) {
  communicator_->Open({.source = TimingSource::kProxy,
                       .slot = slot_.get(),
                       .header = header_.get(),
                       .has_identity = false});
  EXPECT_FALSE(communicator_->HasIdentity());
  communicator_->LearnIdentity(0xab, 3);
  communicator_->LearnIdentity(0xcd, 4);
  EXPECT_TRUE(communicator_->HasIdentity());
  EXPECT_EQ(communicator_->rank(), 3);
  EXPECT_EQ(slot_->communicator_id, 0xabu);
  EXPECT_EQ(slot_->rank, 3u);
  EXPECT_EQ(slot_->has_identity, 1u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
