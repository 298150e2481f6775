// SPDX-License-Identifier: Apache-2.0
// Each class of time in a played trace of which it is the truth.
#include "exporter/trace/time_classes.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "exporter/testing/simulated_nodes.h"

namespace nccl_exporter::exporter {
namespace {

using collector::TracedCommunicator;
using collector::TracedOperation;

CommunicatorTime TimeOf(const std::vector<collector::NodeTrace>& nodes) {
  const ClockAlignment alignment(nodes);
  const auto times = TimeClasses(alignment, CertainWaits(alignment));
  EXPECT_EQ(times.size(), 1u);
  return times.empty() ? CommunicatorTime{} : times[0];
}

double Share(const CommunicatorTime& time, TimeClass one) { return time.Of(one) / time.Total(); }

// One node of four GPUs, which are late by up to 3 ms in collectives of 60 us.
Shape Late(int64_t ahead_ns) {
  return {.nodes = 1, .gpus = 4, .length_ns = 2 * kSecond, .ahead_ns = ahead_ns};
}

TracedCommunicator& CommunicatorOf(SimulatedJob& job, size_t rank) {
  return job.nodes[0].processes[rank].communicators[0];
}

double TotalOf(const std::vector<collector::NodeTrace>& nodes) {
  double sum_ns = 0;
  VisitCommunicators(nodes, [&](const TracePlace&, const TracedCommunicator& communicator) {
    for (const TracedOperation& operation : communicator.operations)
      sum_ns += static_cast<double>(operation.stop_ns - operation.start_ns);
  });
  return sum_ns;
}

TEST(TimeClasses, TransferIsWhatIsLeftWithoutWaits) {
  Shape shape = Late(20 * kUs);
  shape.transfer_ns = 5 * kMs;
  shape.most_late_ns = 0;
  const SimulatedJob job(shape);
  const CommunicatorTime time = TimeOf(job.nodes);
  EXPECT_EQ(time.Verdict(), "transfer");
  EXPECT_GT(Share(time, TimeClass::kTransfer), 0.95);
  EXPECT_DOUBLE_EQ(time.Total(), TotalOf(job.nodes)) << "every operation is in one class";
  EXPECT_EQ(time.traced_ranks, 4u);
}

TEST(TimeClasses, ARankThatCallsLateIsLaunchSkew) {
  const CommunicatorTime time = TimeOf(SimulatedJob(Late(20 * kUs)).nodes);
  EXPECT_EQ(time.Verdict(), "launch skew");
  EXPECT_GT(Share(time, TimeClass::kLaunchSkew), 0.6);
  EXPECT_LT(Share(time, TimeClass::kArrivalSkew), 0.05);
}

TEST(TimeClasses, ARankThatHasCalledAndEntersLateIsArrivalSkew) {
  Shape shape = Late(0);
  shape.calls_together = true;
  const CommunicatorTime time = TimeOf(SimulatedJob(shape).nodes);
  EXPECT_EQ(time.Verdict(), "arrival skew");
  EXPECT_GT(Share(time, TimeClass::kArrivalSkew), 0.6);
  EXPECT_LT(Share(time, TimeClass::kLaunchSkew), 0.05);
}

// Regression: the offset of such a clock to a CPU's was taken for unknown.
TEST(TimeClasses, AGpuThatCountsFrom1970IsCompared) {
  SimulatedJob job(Late(20 * kUs));
  for (size_t rank = 0; rank < 4; ++rank) {
    for (TracedOperation& operation : CommunicatorOf(job, rank).operations) {
      operation.start_ns += 1'790'000'000 * kSecond;
      operation.stop_ns += 1'790'000'000 * kSecond;
    }
  }
  EXPECT_EQ(TimeOf(job.nodes).Verdict(), "launch skew");
}

// Long collectives bound the clocks of their GPUs loosely, and have exact durations.
TEST(TimeClasses, WaitsAreAsLongAsDurationsSay) {
  Shape shape = Late(20 * kUs);
  shape.calls_together = true;
  shape.most_late_ns = 300 * kMs;
  shape.period_ns = kSecond;
  shape.length_ns = 60 * kSecond;
  const SimulatedJob job(shape);
  const CommunicatorTime time = TimeOf(job.nodes);
  EXPECT_GT(time.Total(), 1e9);
  EXPECT_LT(time.Of(TimeClass::kTransfer), 4 * 60 * 0.5e6) << "260 us each, at most";
}

TEST(TimeClasses, ClassesOfSeveralNodesAreThoseOfOne) {
  Shape shape = Late(20 * kUs);
  shape.nodes = 4;
  shape.gpus = 2;
  EXPECT_EQ(TimeOf(SimulatedJob(shape).nodes).Verdict(), "launch skew");
  shape.calls_together = true;
  EXPECT_EQ(TimeOf(SimulatedJob(shape).nodes).Verdict(), "arrival skew");
}

TEST(TimeClasses, NoClassOfMoreThanHalfIsMixed) {
  Shape shape = Late(20 * kUs);
  shape.transfer_ns = 1 * kMs;
  const CommunicatorTime all = TimeOf(SimulatedJob(shape).nodes);
  EXPECT_NE(all.Verdict(), "mixed") << "two classes, of which one has more";
  CommunicatorTime time;
  for (const TimeClass one :
       {TimeClass::kTransfer, TimeClass::kArrivalSkew, TimeClass::kLaunchSkew})
    time.Of(one) = 1e6;
  EXPECT_EQ(time.Verdict(), "mixed");
}

TEST(TimeClasses, CollectivesOfOneNumberAndTwoSizesAreAMismatch) {
  SimulatedJob job(Late(20 * kUs));
  TracedOperation& other = CommunicatorOf(job, 1).operations[5];
  other.bytes *= 2;
  const CommunicatorTime time = TimeOf(job.nodes);
  EXPECT_EQ(time.Verdict(), "sequence mismatch");
  EXPECT_LT(Share(time, TimeClass::kMismatch), 0.05) << "one of many operations";
}

class OpenOperations : public testing::Test {
 protected:
  OpenOperations() {
    for (collector::TracedProcess& process : job_.nodes[0].processes) {
      process.is_alive = true;
      TracedCommunicator& communicator = process.communicators[0];
      communicator.in_flight_is_known = true;
      communicator.started.emplace(kFunctionCount);
      for (const TracedOperation& operation : communicator.operations)
        ++StartedOf(communicator, operation.function);
    }
  }
  static uint64_t& StartedOf(TracedCommunicator& communicator, Function function) {
    return communicator.started->at(static_cast<size_t>(function));
  }
  void Open(size_t rank, Function function, uint64_t sequence, int64_t age_ns = 60 * kSecond) {
    TracedCommunicator& communicator = CommunicatorOf(job_, rank);
    communicator.in_flight.push_back(
        {.function = function, .sequence = sequence, .call_ns = job_.nodes[0].end_ns - age_ns});
    ++StartedOf(communicator, function);
  }
  uint64_t Next() { return CommunicatorOf(job_, 0).operations.back().sequence + 1; }

  SimulatedJob job_{Late(20 * kUs)};
};

TEST_F(OpenOperations, RanksInDifferentCallsAreAMismatch) {
  for (size_t rank = 0; rank < 3; ++rank) Open(rank, Function::kAllReduce, Next());
  Open(3, Function::kAllGather, 1);
  const CommunicatorTime time = TimeOf(job_.nodes);
  EXPECT_EQ(time.Verdict(), "sequence mismatch");
  EXPECT_DOUBLE_EQ(time.Of(TimeClass::kMismatch), 240e9);
}

TEST_F(OpenOperations, ARankThatHasNotCalledIsLaunchSkew) {
  for (size_t rank = 0; rank < 3; ++rank) Open(rank, Function::kAllReduce, Next());
  const CommunicatorTime time = TimeOf(job_.nodes);
  EXPECT_EQ(time.Verdict(), "launch skew");
  EXPECT_GE(time.Of(TimeClass::kLaunchSkew), 180e9);
  EXPECT_EQ(time.Of(TimeClass::kMismatch), 0);
}

TEST_F(OpenOperations, ARankThatIsBehindOrHasEndedIsNoMismatch) {
  // Rank 3 waits in the AllGather before, which the others have called, too.
  for (size_t rank = 0; rank < 4; ++rank) Open(rank, Function::kAllGather, 1);
  for (size_t rank = 0; rank < 3; ++rank) Open(rank, Function::kAllReduce, Next());
  EXPECT_EQ(TimeOf(job_.nodes).Of(TimeClass::kMismatch), 0);
  EXPECT_DOUBLE_EQ(TimeOf(job_.nodes).Of(TimeClass::kOpen), 240e9);
  EXPECT_EQ(TimeOf(job_.nodes).Verdict(), "inconclusive");
}

// Regression: the others had completed it before the window, whose operations do not show it.
TEST_F(OpenOperations, ARankWhoseLastOperationTheOthersCompletedLongAgoIsNoMismatch) {
  for (size_t rank = 0; rank < 4; ++rank) {
    CommunicatorOf(job_, rank).operations.clear();
    Open(rank, Function::kBroadcast, 7);
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    CommunicatorOf(job_, rank).in_flight.clear();
    Open(rank, Function::kAllReduce, 101);
  }
  const CommunicatorTime time = TimeOf(job_.nodes);
  EXPECT_EQ(time.Of(TimeClass::kMismatch), 0);
  EXPECT_DOUBLE_EQ(time.Of(TimeClass::kOpen), 240e9);
}

TEST_F(OpenOperations, ARankThatIsAheadWaitsForNobodyWhoHasCalledItsOldest) {
  for (size_t rank = 0; rank < 4; ++rank) Open(rank, Function::kAllReduce, Next());
  CommunicatorOf(job_, 3).in_flight.clear();
  for (size_t rank = 0; rank < 2; ++rank) Open(rank, Function::kAllReduce, Next() + 1);
  EXPECT_DOUBLE_EQ(TimeOf(job_.nodes).Of(TimeClass::kOpen), 180e9);
}

TEST_F(OpenOperations, OfAFileOfAnEarlierVersionAreNotCompared) {
  for (size_t rank = 0; rank < 3; ++rank) Open(rank, Function::kAllReduce, Next());
  for (size_t rank = 0; rank < 4; ++rank) CommunicatorOf(job_, rank).started.reset();
  EXPECT_DOUBLE_EQ(TimeOf(job_.nodes).Of(TimeClass::kOpen), 180e9);
}

TEST_F(OpenOperations, ARankThatHasEndedIsNotLate) {
  for (size_t rank = 0; rank < 3; ++rank) Open(rank, Function::kAllReduce, Next());
  job_.nodes[0].processes[3].is_alive = false;
  EXPECT_DOUBLE_EQ(TimeOf(job_.nodes).Of(TimeClass::kOpen), 180e9);
}

TEST_F(OpenOperations, ThoseOfAMomentCountNothing) {
  Open(0, Function::kAllReduce, Next(), 2 * kSecond);
  EXPECT_DOUBLE_EQ(TimeOf(job_.nodes).Total(), TotalOf(job_.nodes));
}

TEST(TimeClasses, SaysWhyTimeIsInconclusive) {
  Shape shape = Late(20 * kUs);
  shape.nodes = 2;
  SimulatedJob job(shape);
  job.nodes.pop_back();
  const CommunicatorTime outside = TimeOf(job.nodes);
  EXPECT_GT(outside.Of(TimeClass::kOutside), 0) << "ranks of the other node may be later still";
  EXPECT_EQ(outside.Of(TimeClass::kTransfer), 0);

  SimulatedJob alone(Late(20 * kUs));
  for (collector::TracedProcess& process : alone.nodes[0].processes)
    for (TracedOperation& operation : process.communicators[0].operations)
      operation.function = Function::kBroadcast;
  const CommunicatorTime not_shared = TimeOf(alone.nodes);
  EXPECT_EQ(not_shared.Verdict(), "inconclusive");
  EXPECT_DOUBLE_EQ(not_shared.Of(TimeClass::kNotShared), not_shared.Total());

  // An event after the launch announces the call: nothing proves that the call was late.
  SimulatedJob old(Late(20 * kUs));
  for (size_t rank = 0; rank < 4; ++rank) CommunicatorOf(old, rank).api_version = 4;
  const CommunicatorTime call = TimeOf(old.nodes);
  EXPECT_EQ(call.Of(TimeClass::kLaunchSkew), 0);
  EXPECT_GT(call.Of(TimeClass::kCall) + call.Of(TimeClass::kOrder), call.Total() / 2);
  EXPECT_EQ(call.Verdict(), "inconclusive");
}

TEST(TimeClasses, ACommunicatorOfOneRankTransfers) {
  SimulatedJob job({.nodes = 1, .gpus = 1, .length_ns = kSecond});
  EXPECT_EQ(TimeOf(job.nodes).Verdict(), "transfer");
}

}  // namespace
}  // namespace nccl_exporter::exporter
