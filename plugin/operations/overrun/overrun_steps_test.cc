// SPDX-License-Identifier: Apache-2.0
// A communicator behind NCCL's ring of 64 time stamps, step by step: each test plays one order of
// calls, announcements and deliveries that once gave a wrong duration. ring_overrun_test.cc plays
// whole jobs.
#include "plugin/operations/overrun/overrun_steps.h"

namespace nccl_exporter::plugin {
namespace {

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
  // The next operation runs for 100 us, and the host calls meanwhile. `next_starts`: the start of
  // the operation behind it is delivered before its own last stop.
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

// Regression: a row of launches remembered how much was held before each of them, also after that
// had been dropped, and released more than was held.
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
  Play(Delivery::kInTime, kPause,
       true);  // own, for the host has not called for the one that could overwrite it
  EXPECT_EQ(Recorded(), played_ - first);
  for (int i = 0; i < 60; ++i) {
    Play(Delivery::kInTime, played_ + 1 + kAhead);
    ASSERT_LE(Recorded(), played_ - first);
  }
  EXPECT_EQ(Recorded(), played_ - first - TimestampCheck::kPatientLaunches)
      << "but for those of the row itself";
  communicator_->Finalize();
  EXPECT_EQ(Recorded() + Losses(Loss::kRingOverrun), played_) << "each once";
  EXPECT_FALSE(Drifts());
}

// Groups of more calls than the ring has entries. The second half of the calls runs first, in a
// launch of its own.
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

// Regression: NCCL shows a group with groups in it as one GroupApi for each two calls; the latest
// ones were taken for the beginning of the whole group.
TEST_F(OverrunStepsOfLargeGroups, HoldsTheirTimesHoweverTheyAreShown) {
  PlayInTime(10);
  CallMany(2, kNested);
  RunAndReadLate();
  EXPECT_EQ(Recorded(), 10u);
  PlayInTime(1);
  EXPECT_EQ(Recorded(), 11 + kCalls / 2) << "the launch that ran last was in time";
  EXPECT_EQ(Losses(Loss::kRingOverrun), kCalls / 2);
}

// Regression: the items of one launch are judged as one, so that they can hide a ring from each
// other.
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

TEST_F(OverrunStepsOfLargeGroups,
       HoldsTheirTimesWhereTheyBeganOnAnotherCommunicatorBehindACapturedCall) {
  PlayInTime(10);
  Capture();
  CallMany(0, kNested);
  RunAndReadLate();
  EXPECT_EQ(Recorded(), 10u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
