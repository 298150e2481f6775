// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace nccl_exporter {

// Plays one step of a thread that was interrupted before it.
class CommunicatorPeer {
 public:
  static void GiveUp(Communicator& communicator, uint64_t ticket) {
    communicator.completer().GiveUp(communicator.shared().At(ticket), ticket, NowNs());
  }
};

namespace {

// A communicator of 8 ranks over a slot in ordinary memory.
class CommunicatorTest : public testing::Test {
 protected:
  void Open(TimingSource source) { communicator_->Open(source, 2, 8, slot_.get(), header_.get()); }
  void OpenWithPhases() {
    communicator_->TakePhases(phases_.get());
    Open(TimingSource::kKernel);
  }

  OperationStart AllReduce(uint64_t bytes, uint32_t channels, uint64_t launch = 0) {
    OperationStart start;
    start.function = Function::kAllReduce;
    start.message_bytes = bytes;
    start.channels = channels;
    start.channels_are_exact = channels != 0;
    start.launch = launch;
    start.call_ns = NowNs();
    return start;
  }
  OperationStart PointToPoint(Function function, uint64_t bytes, uint32_t channels, uint64_t launch = 0) {
    OperationStart start = AllReduce(bytes, channels, launch);
    start.function = function;
    start.channels_are_exact = false;
    return start;
  }

  void RunChannel(uint64_t ticket, uint32_t channel, uint64_t start_ns, uint64_t stop_ns) {
    communicator_->parts().StartChannel(ticket, channel, start_ns);
    communicator_->parts().StampChannel(ticket, channel, stop_ns);
    communicator_->parts().StopChannel(ticket, channel);
  }

  // A channel with three phases between four borders; the channel's own times are those of the first and the last.
  void RunPhases(uint64_t ticket, uint32_t channel, const std::array<uint64_t, 4>& borders) {
    RunPhases(ticket, channel, borders, borders.front(), borders.back());
  }
  void RunPhases(uint64_t ticket, uint32_t channel, const std::array<uint64_t, 4>& borders, uint64_t start_ns) {
    RunPhases(ticket, channel, borders, start_ns, borders.back());
  }
  void RunPhases(uint64_t ticket, uint32_t channel, const std::array<uint64_t, 4>& borders, uint64_t start_ns,
                 uint64_t stop_ns) {
    communicator_->parts().StartChannel(ticket, channel, start_ns);
    for (uint32_t phase = 0; phase < 3; ++phase) {
      communicator_->parts().StartPhase(ticket, channel, phase, borders[phase]);
      communicator_->parts().StopPhase(ticket, borders[phase + 1]);
    }
    communicator_->parts().StampChannel(ticket, channel, stop_ns);
    communicator_->parts().StopChannel(ticket, channel);
  }

  // One channel that runs for 1 us, after all that ran before: by the GPU's clock, which is far faster than the CPU's
  // here, so that no times are shown to be older than a call.
  void RunNext(uint64_t ticket, uint32_t channel = 0) {
    gpu_ns_ += 10'000'000;
    RunChannel(ticket, channel, gpu_ns_, gpu_ns_ + 1000);
  }

  layout::FunctionBlock& Block(Function function) { return slot_->functions[static_cast<size_t>(function)]; }
  uint64_t Operations(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).started.operations) sum += LoadRelaxed(word);
    return sum;
  }
  uint64_t Timed(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).timed.timed_operations) sum += LoadRelaxed(word);
    return sum;
  }
  uint64_t BusyNs(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).timed.busy_ns) sum += LoadRelaxed(word);
    return sum;
  }
  std::array<uint64_t, 3> PhaseNs() {
    std::array<uint64_t, 3> sums{};
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = LoadRelaxed(Block(Function::kAllReduce).phase_ns[i]);
    return sums;
  }
  uint64_t Completed(Function function) { return LoadRelaxed(Block(function).completed); }
  uint64_t BandwidthCount(Function function) {
    uint64_t sum = 0;
    for (const AtomicU64& word : Block(function).bandwidth) sum += LoadRelaxed(word);
    return sum;
  }
  uint64_t InFlight() {
    uint64_t sum = 0;
    for (const layout::InFlightEntry& entry : slot_->in_flight) sum += LoadRelaxed(entry.ticket) != 0;
    return sum;
  }
  uint64_t Losses(Loss loss) { return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]); }
  uint64_t AllLosses() {
    uint64_t sum = 0;
    for (const AtomicU64& word : header_->losses) sum += LoadRelaxed(word);
    return sum;
  }

  uint64_t gpu_ns_ = 1'000'000;
  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<HeldTimes::Phases> phases_ = std::make_unique<HeldTimes::Phases>();
  std::unique_ptr<Communicator> communicator_ = std::make_unique<Communicator>();
};

TEST_F(CommunicatorTest, TimesAnOperationFromItsFirstStartToItsLastStop) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(1 << 20, 2));
  communicator_->parts().StartChannel(ticket, 4, 1'000'500);
  communicator_->parts().StartChannel(ticket, 5, 1'000'000);
  communicator_->parts().StampChannel(ticket, 4, 1'002'000);
  communicator_->parts().StopChannel(ticket, 4);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  EXPECT_EQ(InFlight(), 1u);
  communicator_->parts().StampChannel(ticket, 5, 1'003'000);
  communicator_->parts().StopChannel(ticket, 5);
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
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).bandwidth[BandwidthBuckets::IndexOf(bandwidth)]), 1u);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).bandwidth_sum_kib), (bandwidth + 512) / 1024);
  RunChannel(communicator_->StartOperation(AllReduce((1 << 20) - 1, 1)), 0, 20'000, 30'000);
  EXPECT_EQ(BandwidthCount(Function::kAllReduce), 1u);
}

TEST_F(CommunicatorTest, RecordsALaunchWhenItIsClosedAndAllItsMembersAreDone) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(3 << 20, 1, launch));
  RunChannel(first, 0, 1000, 9000);  // done before its companion is announced
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
  const uint64_t send = communicator_->StartOperation(PointToPoint(Function::kSend, 4096, 1, launch));
  const uint64_t receive = communicator_->StartOperation(PointToPoint(Function::kRecv, 4096, 1, launch));
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
  communicator_->parts().StartChannel(second, 3, 3000);
  communicator_->parts().StartChannel(second, 4, 3000);
  EXPECT_EQ(Completed(Function::kSend), 0u);
  RunChannel(first, 5, 1000, 2800);  // another channel, reported later
  communicator_->parts().StartChannel(second, 5, 3000);
  for (uint32_t channel = 3; channel <= 5; ++channel) {
    communicator_->parts().StampChannel(second, channel, 4000);
    communicator_->parts().StopChannel(second, channel);
  }
  EXPECT_EQ(Completed(Function::kSend), 1u);
  EXPECT_EQ(BusyNs(Function::kSend), 1800u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, DoesNotTakeACompanionInTheSameLaunchForALaterOperation) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(PointToPoint(Function::kSend, 100, 16, launch));
  const uint64_t second = communicator_->StartOperation(PointToPoint(Function::kSend, 100, 1, launch));
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

TEST_F(CommunicatorTest, SumsThePhasesOfAKernelAsMeansOfItsChannels) {
  OpenWithPhases();
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 2));
  RunPhases(ticket, 0, {1000, 1400, 1900, 2000});
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{0, 0, 0}));
  RunPhases(ticket, 1, {1100, 1300, 1900, 2100});
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{300, 550, 150}));
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, LeavesPhasesOutThatDoNotFitTheTimesOfTheirChannel) {
  OpenWithPhases();
  RunPhases(communicator_->StartOperation(AllReduce(8, 1)), 0, {1000, 1400, 1900, 2000}, 1001);
  RunPhases(communicator_->StartOperation(AllReduce(8, 1)), 0, {3000, 3400, 3900, 4000}, 3000, 4001);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 2));
  RunPhases(ticket, 0, {5000, 5400, 5900, 6000});
  RunChannel(ticket, 1, 5000, 6000);  // without phases
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{0, 0, 0}));
  EXPECT_EQ(Timed(Function::kAllReduce), 3u);
  EXPECT_EQ(Losses(Loss::kPhaseMismatch), 3u);
}

TEST_F(CommunicatorTest, IgnoresPhasesThatHaveNoChannelNoStartOrNoName) {
  OpenWithPhases();
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 1));
  EXPECT_FALSE(communicator_->parts().StartPhase(ticket, 0, 0, 1000)) << "its channel has not started";
  communicator_->parts().StartChannel(ticket, 0, 1000);
  communicator_->parts().StopPhase(ticket, 1500);
  EXPECT_EQ(Losses(Loss::kStopWithoutStart), 1u);
  communicator_->parts().StartPhase(ticket, 0, 3, 1000);
  communicator_->parts().StopPhase(ticket, 2000);
  communicator_->parts().StopPhase(ticket, 2000);
  communicator_->parts().StampChannel(ticket, 0, 2000);
  communicator_->parts().StopChannel(ticket, 0);
  EXPECT_FALSE(communicator_->parts().StartPhase(ticket, 0, 0, 1000));
  communicator_->parts().StopPhase(ticket, 2000);
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{0, 0, 0}));
  EXPECT_EQ(Losses(Loss::kPhaseMismatch), 1u);
  EXPECT_EQ(Losses(Loss::kUnknownHandle), 1u);
  EXPECT_EQ(Timed(Function::kAllReduce), 1u);
}

TEST_F(CommunicatorTest, LeavesOutThePhasesOfAnOperationThatIsNotTimed) {
  OpenWithPhases();
  RunPhases(communicator_->StartOperation(AllReduce(8, 1)), 0, {1000, 1400, 1900, 2000}, 0, 2000);
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{0, 0, 0}));
  EXPECT_EQ(Losses(Loss::kZeroTimestamp), 1u);
}

// Somebody else may change NCCL's mask.
TEST_F(CommunicatorTest, IgnoresPhasesThatAreNotAskedFor) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 1));
  communicator_->parts().StartChannel(ticket, 0, 1000);
  EXPECT_FALSE(communicator_->parts().StartPhase(ticket, 0, 0, 1000));
  communicator_->parts().StopPhase(ticket, 2000);
  communicator_->parts().StampChannel(ticket, 0, 2000);
  communicator_->parts().StopChannel(ticket, 0);
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{0, 0, 0}));
  EXPECT_EQ(Timed(Function::kAllReduce), 1u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, KeepsThePhasesOfTimesThatAreHeld) {
  OpenWithPhases();
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  RunPhases(tickets[0], 0, {1000, 1400, 1900, 2000});
  RunPhases(tickets[1], 0, {3000, 3001, 3003, 3007});
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{0, 0, 0}));
  for (size_t i = 2; i < tickets.size(); ++i) RunNext(tickets[i]);
  EXPECT_EQ(Timed(Function::kAllReduce), 100u);
  EXPECT_EQ(PhaseNs(), (std::array<uint64_t, 3>{401, 502, 104}));
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
  EXPECT_EQ(Losses(Loss::kCompanion), 1u);
}

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
  communicator_->parts().StartChannel(lost, 0, 1000);
  communicator_->StartOperation(AllReduce(8, 2));
  communicator_->Finalize();
  EXPECT_EQ(Losses(Loss::kIncompleteAtFinalize), 2u);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  EXPECT_EQ(InFlight(), 0u);
  communicator_->parts().StopChannel(lost, 0);
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
  for (uint64_t i = 1; i < kOperationEntries + 10; ++i) communicator_->StartOperation(AllReduce(8, 1));
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
  communicator_->parts().StartChannel(lost, 0, 5000);
  EXPECT_EQ(Losses(Loss::kStaleHandle), 1u);
}

TEST_F(CommunicatorTest, IgnoresEventsOfOperationsThatAreGone) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 1));
  RunChannel(ticket, 0, 1000, 2000);
  RunChannel(ticket, 0, 1000, 2000);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  EXPECT_EQ(Losses(Loss::kAfterCompletion), 3u);
  communicator_->parts().StopChannel(ticket + 1, 0);
  communicator_->parts().StopChannel(ticket + kOperationEntries, 0);
  EXPECT_EQ(Losses(Loss::kStaleHandle), 2u);
}

TEST_F(CommunicatorTest, CountsAStopWithoutStartAndADoubleStop) {
  Open(TimingSource::kKernel);
  const uint64_t ticket = communicator_->StartOperation(AllReduce(8, 3));
  communicator_->parts().StampChannel(ticket, 0, 1000);
  communicator_->parts().StopChannel(ticket, 0);
  EXPECT_EQ(Losses(Loss::kStopWithoutStart), 2u);
  RunChannel(ticket, 1, 1000, 2000);
  communicator_->parts().StopChannel(ticket, 1);
  EXPECT_EQ(Losses(Loss::kAfterCompletion), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
}

TEST_F(CommunicatorTest, RejectsStampsThatCannotBe) {
  Open(TimingSource::kKernel);
  RunChannel(communicator_->StartOperation(AllReduce(8, 1)), 0, 2000, 1000);
  RunChannel(communicator_->StartOperation(AllReduce(8, 1)), 0, 0, 1000);
  const uint64_t unstamped = communicator_->StartOperation(AllReduce(8, 1));
  communicator_->parts().StartChannel(unstamped, 0, 1000);
  communicator_->parts().StopChannel(unstamped, 0);
  OperationStart bound = AllReduce(8, 1);
  bound.call_is_bound = true;
  RunChannel(communicator_->StartOperation(bound), 0, 1000, 5'000'001'000);
  EXPECT_EQ(Losses(Loss::kStopBeforeStart), 1u);
  EXPECT_EQ(Losses(Loss::kZeroTimestamp), 1u);
  EXPECT_EQ(Losses(Loss::kStopStampMissing), 1u);
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
  for (uint64_t i = 0; i < kOperationEntries; ++i) RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(Losses(Loss::kOperationAbandoned), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), kOperationEntries + 2);
  EXPECT_EQ(Timed(Function::kAllReduce), kOperationEntries);
}

// The thread that calls NCCL found the operation running, and is interrupted; it comes to giving it up when NCCL's
// thread has ended it and its companion's end is about to record both. It used to reset the times under the recorder,
// which then read a start of 0: the longest of durations, and drift.
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

// And the other way round: what is given up in the middle of its channels is written on by NCCL's thread.
TEST_F(CommunicatorTest, ReadsNoPartsOfAnOperationThatWasGivenUpWhileItsChannelsAreReported) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t first = communicator_->StartOperation(AllReduce(1 << 20, 2, launch));
  const uint64_t second = communicator_->StartOperation(AllReduce(1 << 20, 1, launch));
  communicator_->CloseLaunch(launch);
  communicator_->parts().StartChannel(first, 0, 1000);
  CommunicatorPeer::GiveUp(*communicator_, first);
  communicator_->parts().StampChannel(first, 0, 2000);
  communicator_->parts().StopChannel(first, 0);
  RunChannel(second, 1, 1000, 9000);
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kOperationAbandoned), 1u);
  EXPECT_EQ(Losses(Loss::kCompanion), 1u);
  EXPECT_TRUE(communicator_->FollowsOperations());
}

// Two threads, as in a job whose host is a whole ring ahead: one calls and gives up what later operations have
// overtaken, the other lets each second operation run across the one behind it.
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
      if (first != 0) communicator_->parts().StartChannel(first, 0, gpu_ns + 1000);
      if (second != 0) RunChannel(second, 1, gpu_ns + 2000, gpu_ns + 3000);
      if (first != 0) communicator_->parts().StampChannel(first, 0, gpu_ns + 2000);
      if (first != 0) communicator_->parts().StopChannel(first, 0);
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

TEST_F(CommunicatorTest, CompletesASendToSelfUntimedAndDoesNotHoldItsLaunch) {
  Open(TimingSource::kKernel);
  const uint64_t launch = communicator_->OpenLaunch();
  OperationStart self = PointToPoint(Function::kSend, 100, 4, launch);
  self.has_no_parts = true;
  communicator_->StartOperation(self);
  const uint64_t other = communicator_->StartOperation(PointToPoint(Function::kSend, 100, 1, launch));
  communicator_->CloseLaunch(launch);
  RunChannel(other, 0, 1000, 2000);
  EXPECT_EQ(Completed(Function::kSend), 2u);
  EXPECT_EQ(Timed(Function::kSend), 1u);
  EXPECT_EQ(BusyNs(Function::kSend), 1000u);
}

TEST_F(CommunicatorTest, TimesProxyOperationsUntilThoseOfALaterLaunchCome) {
  Open(TimingSource::kProxy);
  const uint64_t first = communicator_->StartOperation(AllReduce(8, 4));
  ASSERT_TRUE(communicator_->parts().StartProxy(first));
  communicator_->parts().StopProxy(first);
  ASSERT_TRUE(communicator_->parts().StartProxy(first));  // appended after the first was done
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  const uint64_t second = communicator_->StartOperation(AllReduce(8, 4));
  ASSERT_TRUE(communicator_->parts().StartProxy(second));
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  communicator_->parts().StopProxy(first);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  communicator_->parts().StopProxy(second);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
  communicator_->Finalize();
  EXPECT_EQ(Completed(Function::kAllReduce), 2u);
  EXPECT_EQ(Timed(Function::kAllReduce), 2u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, DoesNotTakeProxyOperationsOfACompanionForThoseOfALaterLaunch) {
  Open(TimingSource::kProxy);
  const uint64_t launch = communicator_->OpenLaunch();
  const uint64_t send = communicator_->StartOperation(PointToPoint(Function::kSend, 8, 4, launch));
  const uint64_t receive = communicator_->StartOperation(PointToPoint(Function::kRecv, 8, 4, launch));
  communicator_->CloseLaunch(launch);
  ASSERT_TRUE(communicator_->parts().StartProxy(send));
  communicator_->parts().StopProxy(send);
  ASSERT_TRUE(communicator_->parts().StartProxy(receive));
  ASSERT_TRUE(communicator_->parts().StartProxy(send));  // a second channel
  communicator_->parts().StopProxy(send);
  communicator_->parts().StopProxy(receive);
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kSend), 1u);
  EXPECT_EQ(Timed(Function::kRecv), 1u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, LetsGoOfOperationsThatNeverReachTheNetworkWithoutCountingALoss) {
  Open(TimingSource::kProxy);
  for (uint64_t i = 0; i < 2 * kOperationEntries; ++i) communicator_->StartOperation(AllReduce(8, 4));
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
    const layout::CompletionEntry& entry = slot_->completions[(ticket - 1) % layout::kCompletionEntries];
    EXPECT_EQ(LoadRelaxed(entry.ticket), ticket);
    EXPECT_EQ(LoadRelaxed(entry.function_and_sequence), uint64_t{4} << 56 | ticket);
    EXPECT_EQ(LoadRelaxed(entry.start_ns), 1000 * ticket);
    EXPECT_EQ(LoadRelaxed(entry.stop_ns), 1000 * ticket + 10);
  }
}

// The host has announced 100 operations before the first one's times are read.
TEST_F(CommunicatorTest, KeepsTimesBackWhileTheHostIsFarAheadUntilLaterOnesAgree) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  RunNext(tickets[0]);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).completed), 1u);
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  for (size_t i = 1; i < tickets.size(); ++i) RunNext(tickets[i]);
  EXPECT_EQ(Timed(Function::kAllReduce), 100u);
}

TEST_F(CommunicatorTest, DropsTimesThatLaterOnesContradictWhileTheHostIsFarAhead) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
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
  for (int i = 0; i < 100; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  RunNext(tickets[0]);
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 1u);
}

// House rule: a slot is used anew. What could not be dropped at finalize is not the next communicator's.
TEST_F(CommunicatorTest, DoesNotHandOverTimesItHoldsToTheNextCommunicatorOfItsSlot) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 100; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  for (int i = 0; i < 30; ++i) RunNext(tickets[static_cast<size_t>(i)]);
  Open(TimingSource::kKernel);  // as after a finalize that did not get the lock, whose holder is interrupted
  RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  EXPECT_EQ(Timed(Function::kAllReduce), 1u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 30u);
}

TEST_F(CommunicatorTest, DropsTheOldestTimesThatItHoldsWhenThereAreTooMany) {
  Open(TimingSource::kKernel);
  std::deque<uint64_t> tickets;
  for (uint64_t i = 0; i < HeldTimes::kCapacity + 150; ++i) {
    tickets.push_back(communicator_->StartOperation(AllReduce(1 << 20, 1)));
    if (tickets.size() < 100) continue;
    RunNext(tickets.front());
    tickets.pop_front();
  }
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 51u);
  for (const uint64_t ticket : tickets) RunNext(ticket);
  for (int i = 0; i < 30; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  const uint64_t total = HeldTimes::kCapacity + 180;
  EXPECT_EQ(Timed(Function::kAllReduce) + Losses(Loss::kRingOverrun), total);
  EXPECT_LT(Losses(Loss::kRingOverrun), 200u);
}

// Nothing says that a thousand operations that ran unseen did not overrun what was read before them.
TEST_F(CommunicatorTest, DoesNotBelieveTimesAcrossManyOperationsThatItDidNotFollow) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < kOperationEntries; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(8, 1)));
  for (int i = 0; i < 10; ++i) RunNext(tickets[static_cast<size_t>(i)]);
  for (int i = 0; i < 200; ++i) communicator_->StartOperation(AllReduce(8, 1));  // 10 of them find a place
  RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
}

TEST_F(CommunicatorTest, HoldsTheTimesOfAReleaseOnProbationUntilManyAgreeWithTheCpu) {
  communicator_->Open(TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {}, true);
  for (uint32_t i = 1; i < LaunchJudge::kProbationLaunches; ++i) {
    RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  }
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(LoadRelaxed(slot_->probation_launches), 1u);
  EXPECT_EQ(Completed(Function::kAllReduce), LaunchJudge::kProbationLaunches - 1);
  for (int i = 0; i < 10; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  EXPECT_EQ(Timed(Function::kAllReduce), LaunchJudge::kProbationLaunches + 9);
  EXPECT_EQ(LoadRelaxed(slot_->probation_launches), 0u);
  EXPECT_EQ(AllLosses(), 0u);
}

TEST_F(CommunicatorTest, DropsTheTimesOfAReleaseThatFailsItsProbation) {
  communicator_->Open(TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {}, true);
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
  communicator_->Open(TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {.hides_parts = true});
  communicator_->StartOperation(AllReduce(8, 1));
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kNone));
  OperationStart to_self = PointToPoint(Function::kSend, 1 << 20, 1);
  to_self.peer = 2;
  to_self.is_to_self = true;
  communicator_->StartOperation(to_self);
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kMessageToSelf));
  communicator_->EndKernelTiming();
  EXPECT_EQ(LoadRelaxed(slot_->drift_cause), static_cast<uint64_t>(DriftCause::kMessageToSelf));
}

TEST_F(CommunicatorTest, CountsTheTimesThatItHoldsForAReleaseOnProbationByThatCause) {
  communicator_->Open(TimingSource::kKernel, 2, 8, slot_.get(), header_.get(), {}, true);
  for (int i = 0; i < 10; ++i) RunNext(communicator_->StartOperation(AllReduce(1 << 20, 1)));
  communicator_->Finalize();
  EXPECT_EQ(Timed(Function::kAllReduce), 0u);
  EXPECT_EQ(Losses(Loss::kUnproven), 10u);
}

TEST_F(CommunicatorTest, TakesWhatItCouldNotFollowForCompleteOnceALaterOperationIs) {
  Open(TimingSource::kKernel);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < kOperationEntries; ++i) tickets.push_back(communicator_->StartOperation(AllReduce(8, 1)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(communicator_->StartOperation(AllReduce(8, 1)), 0u);
  EXPECT_EQ(Losses(Loss::kInFlightFull), 3u);
  for (const uint64_t ticket : tickets) RunNext(ticket);
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).completed), kOperationEntries);
  RunNext(communicator_->StartOperation(AllReduce(8, 1)));
  EXPECT_EQ(LoadRelaxed(Block(Function::kAllReduce).completed), kOperationEntries + 4);
  EXPECT_EQ(Operations(Function::kAllReduce), kOperationEntries + 4);
}

}  // namespace
}  // namespace nccl_exporter
