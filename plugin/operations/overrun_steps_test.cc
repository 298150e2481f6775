// SPDX-License-Identifier: Apache-2.0
// A communicator behind NCCL's ring of 64 time stamps, step by step: each test plays one order of calls, announcements
// and deliveries that once gave a wrong duration. ring_overrun_test.cc plays whole jobs.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "plugin/operations/communicator.h"
#include "plugin/operations/virtual_time.h"

namespace nccl_exporter {
namespace {

constexpr uint64_t kRing = 64;
constexpr int kAlone = 1;  // depth of a call that is made outside of groups
constexpr int kNested = 3;

class OverrunSteps : public testing::Test {
 protected:
  void SetUp() override {
    virtual_ns = 10'000 * kMs;
    communicator_->Open(TimingSource::kKernel, 0, 2, slot_.get(), header_.get());
  }

  void BeginGroup(int depth) { communicator_->BeginCallGroup(depth); }
  uint64_t Call() {
    communicator_->NoteCall(false);
    communicator_->NoteWorkItem(virtual_ns);
    const uint64_t called_ns = virtual_ns;
    virtual_ns += 2 * kUs;
    return called_ns;
  }
  uint64_t CallAlone() { return BeginGroup(kAlone), Call(); }

  void Capture() {
    BeginGroup(kAlone);
    communicator_->NoteCall(true);
  }

  uint64_t Announce(uint64_t launch, uint64_t call_ns, bool is_replay = false) {
    OperationStart start;
    start.function = Function::kReduceScatter;
    start.message_bytes = 1 << 20;
    start.sequence = sequence_++;
    start.call_ns = call_ns;
    start.call_is_bound = true;
    start.is_replay = is_replay;
    start.channels = 2;
    start.channels_are_exact = true;
    start.launch = launch;
    return communicator_->StartOperation(start);
  }
  uint64_t AnnounceAlone(uint64_t call_ns, bool is_replay = false) {
    const uint64_t launch = communicator_->OpenLaunch();
    const uint64_t ticket = Announce(launch, call_ns, is_replay);
    communicator_->CloseLaunch(launch);
    return ticket;
  }
  uint64_t AnnounceReplay() { return AnnounceAlone(virtual_ns, true); }

  void Start(uint64_t ticket, uint32_t channel, uint64_t start_ns) {
    communicator_->parts().StartChannel(ticket, channel, start_ns + kGpuOffsetNs);
  }
  void Stop(uint64_t ticket, uint32_t channel, uint64_t stop_ns) {
    communicator_->parts().StampChannel(ticket, channel, stop_ns + kGpuOffsetNs);
    communicator_->parts().StopChannel(ticket, channel);
  }
  // With those times, now.
  void Complete(uint64_t ticket, uint64_t start_ns, uint64_t stop_ns) {
    for (uint32_t channel : {0, 1}) Start(ticket, channel, start_ns);
    for (uint32_t channel : {0, 1}) Stop(ticket, channel, stop_ns);
  }
  // So many operations that are called, run for 100 us, and are read before the next call.
  void PlayInTime(int operations) {
    for (int i = 0; i < operations; ++i) {
      const uint64_t ticket = AnnounceAlone(CallAlone());
      const uint64_t start_ns = virtual_ns + 10 * kUs;
      virtual_ns = start_ns + 105 * kUs;
      Complete(ticket, start_ns, start_ns + 100 * kUs);
    }
  }

  uint64_t Recorded() const {
    uint64_t recorded = 0;
    const auto& of_function = slot_->functions[static_cast<size_t>(Function::kReduceScatter)];
    for (const auto& operations : of_function.timed.timed_operations) recorded += LoadRelaxed(operations);
    return recorded;
  }
  uint64_t Losses(Loss loss) const { return LoadRelaxed(header_->losses[static_cast<size_t>(loss)]); }
  bool Drifts() const { return !communicator_->FollowsOperations(); }

  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<Communicator> communicator_ = std::make_unique<Communicator>();

 private:
  uint64_t sequence_ = 0;
};

// A host that is always more than a ring ahead, so that no times are own, unless it pauses.
class OverrunStepsFarAhead : public OverrunSteps {
 protected:
  static constexpr uint64_t kAhead = kRing + 17;
  enum class Delivery : uint8_t {
    kAtTheEnd,   // start and stop together: the thread is not seen to wait
    kInTime,     // the start while the kernel runs
    kGoingBack,  // in time, and before the times of the operation before
  };

  void CallUntil(uint64_t calls) {
    while (tickets_.size() < calls) tickets_.push_back(AnnounceAlone(CallAlone()));
  }
  // The next operation runs for 100 us, and the host calls meanwhile. `next_starts`: the start of the operation behind
  // it is delivered before its own last stop.
  void Play(Delivery delivery, uint64_t calls, bool next_starts = false) {
    const uint64_t ticket = tickets_.at(played_++);
    const bool goes_back = delivery == Delivery::kGoingBack;
    const uint64_t end_ns = start_ns_ + 100 * kUs;
    const uint64_t told_start_ns = goes_back ? start_ns_ - 250 * kUs : start_ns_;
    const uint64_t told_stop_ns = goes_back ? told_start_ns + 50 * kUs : end_ns;
    virtual_ns = start_ns_ + 2 * kUs;
    if (delivery != Delivery::kAtTheEnd) StartBoth(ticket, told_start_ns);
    virtual_ns = start_ns_ + 20 * kUs;
    CallUntil(calls);
    virtual_ns = end_ns + 3 * kUs;
    if (delivery == Delivery::kAtTheEnd) StartBoth(ticket, told_start_ns);
    Stop(ticket, 0, told_stop_ns);
    start_ns_ += 120 * kUs;
    if (next_starts) {
      virtual_ns = start_ns_ + 2 * kUs;
      Start(tickets_.at(played_), 0, start_ns_);
    }
    is_started_ = next_starts;
    Stop(ticket, 1, told_stop_ns);
  }
  // The host has called for `most` operations at most.
  void PlayAhead(int operations, Delivery delivery, uint64_t most = ~uint64_t{0}) {
    for (int i = 0; i < operations; ++i) Play(delivery, std::min(played_ + 1 + kAhead, most));
  }

  uint64_t played_ = 0;
  uint64_t start_ns_ = virtual_ns + kMs;

 private:
  void StartBoth(uint64_t ticket, uint64_t start_ns) {
    if (!is_started_) Start(ticket, 0, start_ns);
    Start(ticket, 1, start_ns);
  }

  std::vector<uint64_t> tickets_;
  bool is_started_ = false;
};

// Regression: a row of launches remembered how much was held before each of them, also after that had been dropped, and
// released more than was held.
TEST_F(OverrunStepsFarAhead, ReleasesNothingTwiceWhereARowOutlivesWhatWasHeldBeforeIt) {
  constexpr uint64_t kPause = 114 + kRing;
  start_ns_ = virtual_ns + kMs;
  CallUntil(kAhead);
  PlayAhead(100, Delivery::kAtTheEnd, kPause);
  PlayAhead(9, Delivery::kInTime, kPause);
  PlayAhead(1, Delivery::kGoingBack, kPause);
  EXPECT_EQ(Recorded(), 0u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), 109u) << "all that was held";

  const uint64_t first = played_ - 1;  // the times that went back are held again
  PlayAhead(4, Delivery::kInTime, kPause);
  Play(Delivery::kInTime, kPause, true);  // own, for the host has not called for the one that could overwrite it
  EXPECT_EQ(Recorded(), played_ - first);
  for (int i = 0; i < 60; ++i) {
    Play(Delivery::kInTime, played_ + 1 + kAhead);
    ASSERT_LE(Recorded(), played_ - first);
  }
  EXPECT_EQ(Recorded(), played_ - first - Plausibility::kPatientLaunches) << "but for those of the row itself";
  communicator_->Finalize();
  EXPECT_EQ(Recorded() + Losses(Loss::kRingOverrun), played_) << "each once";
  EXPECT_FALSE(Drifts());
}

// Groups of more calls than the ring has entries. The second half of the calls runs first, in a launch of its own.
class OverrunStepsOfLargeGroups : public OverrunSteps {
 protected:
  static constexpr uint64_t kCalls = 100;

  // Each calls for another GroupApi event at that depth; 0: none.
  void CallMany(uint64_t calls_per_event, int depth) {
    for (uint64_t i = 0; i < kCalls; ++i) {
      if (calls_per_event != 0 && i % calls_per_event == 0) BeginGroup(depth);
      calls_.push_back(Call());
    }
  }
  // The thread reads all at the end: the first have been overwritten.
  void RunAndReadLate(uint64_t calls_per_launch = kCalls / 2) {
    std::rotate(calls_.begin(), calls_.begin() + kCalls / 2, calls_.end());
    std::vector<uint64_t> tickets;
    uint64_t launch = 0;
    for (uint64_t i = 0; i < kCalls; ++i) {
      if (i % calls_per_launch == 0) launch = communicator_->OpenLaunch();
      tickets.push_back(Announce(launch, calls_[i]));
      if ((i + 1) % calls_per_launch == 0) communicator_->CloseLaunch(launch);
    }
    const uint64_t first_ns = virtual_ns + 10 * kUs;
    virtual_ns = first_ns + (10 * kCalls + 5) * kUs;
    for (uint64_t i = 0; i < kCalls; ++i) {
      const uint64_t shown_ns = first_ns + (i + kRing < kCalls ? i + kRing : i) * 10 * kUs;
      Complete(tickets[i], shown_ns, shown_ns + 10 * kUs);
    }
  }

 private:
  std::vector<uint64_t> calls_;
};

// Regression: NCCL shows a group with groups in it as one GroupApi for each two calls; the latest ones were taken for
// the beginning of the whole group.
TEST_F(OverrunStepsOfLargeGroups, HoldsTheirTimesHoweverTheyAreShown) {
  PlayInTime(10);
  CallMany(2, kNested);
  RunAndReadLate();
  EXPECT_EQ(Recorded(), 10u);
  PlayInTime(1);
  EXPECT_EQ(Recorded(), 11 + kCalls / 2) << "the launch that ran last was in time";
  EXPECT_EQ(Losses(Loss::kRingOverrun), kCalls / 2);
}

// Regression: the items of one launch are judged as one, so that they can hide a ring from each other.
TEST_F(OverrunStepsOfLargeGroups, DropsALaunchThatMayHaveOverwrittenItself) {
  PlayInTime(10);
  CallMany(kCalls, kNested);
  RunAndReadLate(kCalls);
  EXPECT_EQ(Recorded(), 10u);
  PlayInTime(2);  // so many completions release all
  EXPECT_EQ(Recorded(), 12u);
  EXPECT_EQ(Losses(Loss::kRingOverrun), kCalls);
}

// A group that begins with a call on another communicator is shown there only.
TEST_F(OverrunStepsOfLargeGroups, HoldsTheirTimesWhereTheyBeganOnAnotherCommunicator) {
  PlayInTime(10);
  CallMany(0, kNested);
  RunAndReadLate();
  EXPECT_EQ(Recorded(), 10u);
}

TEST_F(OverrunStepsOfLargeGroups, HoldsTheirTimesWhereTheyBeganOnAnotherCommunicatorBehindACapturedCall) {
  PlayInTime(10);
  Capture();
  CallMany(0, kNested);
  RunAndReadLate();
  EXPECT_EQ(Recorded(), 10u);
}

// A graph that was launched before calls runs before them, and is announced behind them.
class OverrunStepsOfGraphs : public OverrunSteps {
 protected:
  std::vector<uint64_t> CallMany(uint64_t count, int depth) {
    std::vector<uint64_t> calls;
    for (uint64_t i = 0; i < count; ++i) {
      BeginGroup(depth);
      calls.push_back(Call());
    }
    return calls;
  }
  // Announced one after the other as the stream reaches them, each running for 100 us.
  void AnnounceAndRun(const std::vector<uint64_t>& calls, std::vector<uint64_t>* tickets,
                      std::vector<uint64_t>* starts) {
    for (const uint64_t call_ns : calls) {
      tickets->push_back(AnnounceAlone(call_ns));
      starts->push_back(virtual_ns + 5 * kUs);
      virtual_ns += 120 * kUs;
    }
  }
};

// Regression: a replay was counted behind calls that were made before it was announced.
TEST_F(OverrunStepsOfGraphs, HoldsAReplayBehindWhichTheHostHasCalledAhead) {
  PlayInTime(10);
  Capture();
  const std::vector<uint64_t> calls = CallMany(70, kAlone);
  virtual_ns += kMs;
  std::vector<uint64_t> starts{virtual_ns + 5 * kUs};
  std::vector<uint64_t> tickets{AnnounceReplay()};
  virtual_ns += 120 * kUs;
  AnnounceAndRun(calls, &tickets, &starts);
  virtual_ns = starts[kRing] + 105 * kUs;
  Complete(tickets[0], starts[kRing], starts[kRing] + 77 * kUs);  // of the item one ring behind
  EXPECT_EQ(Recorded(), 10u);
  for (uint64_t i = 1; i < 7; ++i) {
    virtual_ns = starts[i + kRing] + 105 * kUs;
    Complete(tickets[i], starts[i + kRing], starts[i + kRing] + 77 * kUs);
  }
  for (uint64_t i = 7; i < tickets.size(); ++i) {
    virtual_ns += 120 * kUs;
    Complete(tickets[i], starts[i], starts[i] + 77 * kUs);
  }
  EXPECT_FALSE(Drifts());
  EXPECT_EQ(Losses(Loss::kRingOverrun), 7u);
  EXPECT_EQ(Recorded(), 10 + tickets.size() - 7);
}

// Regression: calls that NCCL announces by a host function, because a graph ran before them, were counted behind calls
// that were made before that announcement.
class OverrunStepsOfLateAnnouncements : public OverrunStepsOfGraphs, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(AtDepth, OverrunStepsOfLateAnnouncements, testing::Values(kAlone, kNested));

TEST_P(OverrunStepsOfLateAnnouncements, AreHeldWhereTheRingMayHaveComeRound) {
  PlayInTime(10);
  Capture();
  std::vector<uint64_t> calls = CallMany(100, GetParam());
  virtual_ns += kMs;
  std::vector<uint64_t> starts;
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < kRing + 2; ++i) {
    AnnounceAndRun({calls[i]}, &tickets, &starts);
    if (i < 30) calls.push_back(CallMany(1, GetParam()).front());
  }
  virtual_ns = starts[1 + kRing] + 105 * kUs;
  Complete(tickets[1], starts[1 + kRing], starts[1 + kRing] + 77 * kUs);  // of the item one ring behind
  EXPECT_EQ(Recorded(), 10u);
  EXPECT_FALSE(Drifts());
}

TEST_F(OverrunStepsOfGraphs, HoldsACallThatIsAnnouncedBehindALaterOne) {
  PlayInTime(10);
  const std::vector<uint64_t> calls = CallMany(2, kAlone);
  virtual_ns += kMs;
  std::vector<uint64_t> starts;
  std::vector<uint64_t> tickets;
  AnnounceAndRun({calls[1], calls[0]}, &tickets, &starts);
  for (uint64_t i = 0; i < tickets.size(); ++i) Complete(tickets[i], starts[i], starts[i] + 100 * kUs);
  EXPECT_EQ(Recorded(), 11u) << "nothing says what runs behind the second";
  PlayInTime(1);
  EXPECT_EQ(Recorded(), 13u);
}

// What is known to be true is recorded at once.
TEST_F(OverrunStepsOfGraphs, RecordsReplaysAndCallsAtOnceWhereTheHostIsAFewCallsAhead) {
  PlayInTime(10);
  Capture();
  for (int round = 0; round < 200; ++round) {
    const std::vector<uint64_t> calls = CallMany(4, kAlone);
    std::vector<uint64_t> starts{virtual_ns + 5 * kUs};
    std::vector<uint64_t> tickets{AnnounceReplay()};
    virtual_ns += 120 * kUs;
    AnnounceAndRun(calls, &tickets, &starts);
    for (uint64_t i = 0; i < tickets.size(); ++i) Complete(tickets[i], starts[i], starts[i] + 100 * kUs);
    ASSERT_EQ(Recorded(), 10u + 5 * static_cast<uint64_t>(round + 1));
  }
}

}  // namespace
}  // namespace nccl_exporter
