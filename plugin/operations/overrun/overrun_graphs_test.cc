// SPDX-License-Identifier: Apache-2.0
// A communicator behind NCCL's ring of 64 time stamps, step by step: each test plays one order of
// calls, announcements and deliveries that once gave a wrong duration. Those with graphs.
#include "plugin/operations/overrun/overrun_steps.h"

namespace nccl_exporter::plugin {
namespace {

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

// Regression: calls that NCCL announces by a host function, because a graph ran before them, were
// counted behind calls that were made before that announcement.
class OverrunStepsOfLateAnnouncements : public OverrunStepsOfGraphs,
                                        public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(AtDepth, OverrunStepsOfLateAnnouncements,
                         testing::Values(kAlone, kNested));

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
  Complete(tickets[1], starts[1 + kRing],
           starts[1 + kRing] + 77 * kUs);  // of the item one ring behind
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
  for (uint64_t i = 0; i < tickets.size(); ++i)
    Complete(tickets[i], starts[i], starts[i] + 100 * kUs);
  EXPECT_EQ(Recorded(), 11u) << "nothing says what runs behind the second";
  PlayInTime(1);
  EXPECT_EQ(Recorded(), 13u);
}

// Times that are known to be true are recorded at once.
TEST_F(OverrunStepsOfGraphs, RecordsReplaysAndCallsAtOnceWhereTheHostIsAFewCallsAhead) {
  PlayInTime(10);
  Capture();
  for (int round = 0; round < 200; ++round) {
    const std::vector<uint64_t> calls = CallMany(4, kAlone);
    std::vector<uint64_t> starts{virtual_ns + 5 * kUs};
    std::vector<uint64_t> tickets{AnnounceReplay()};
    virtual_ns += 120 * kUs;
    AnnounceAndRun(calls, &tickets, &starts);
    for (uint64_t i = 0; i < tickets.size(); ++i)
      Complete(tickets[i], starts[i], starts[i] + 100 * kUs);
    ASSERT_EQ(Recorded(), 10u + 5 * static_cast<uint64_t>(round + 1));
  }
}

}  // namespace
}  // namespace nccl_exporter::plugin
