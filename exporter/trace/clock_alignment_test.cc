// SPDX-License-Identifier: Apache-2.0
// Clocks of simulated nodes and GPUs, which are off and drift: the true times lie within the
// bounds.
#include "exporter/trace/clock_alignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "exporter/testing/simulated_nodes.h"

namespace nccl_exporter::exporter {
namespace {

using collector::NodeTrace;
using collector::TracedOperation;

// The widest bound of all starts, against the true times on the axis, each of which lies within.
int64_t ExpectTrueTimesWithin(const SimulatedJob& job, const ClockAlignment& alignment) {
  int64_t widest_ns = 0;
  for (const Meeting& meeting : alignment.meetings()) {
    for (const Participation& member : meeting.members) {
      const int64_t true_ns = job.Gpu(member).TrueOf(member.start_ns);
      const int64_t on_axis_ns = job.Cpu(0).Read(true_ns);
      const OffsetBounds bounds = alignment.At(member.clock, member.start_ns);
      EXPECT_GE(on_axis_ns, member.start_ns + bounds.least_ns - 32) << "rank " << member.rank;
      EXPECT_LE(on_axis_ns, member.start_ns + bounds.most_ns + 32) << "rank " << member.rank;
      widest_ns = std::max(widest_ns, bounds.Uncertainty());
    }
  }
  return widest_ns;
}

TEST(ClockAlignmentTest, BoundsHoldAndAreCloseWhereNodesMeetAHundredTimesASecond) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const SimulatedJob job({.seed = seed});
    const ClockAlignment alignment(job.nodes);
    EXPECT_EQ(alignment.meetings().size(), 999u);
    EXPECT_EQ(alignment.contradictions(), 0u);
    EXPECT_LE(ExpectTrueTimesWithin(job, alignment), 200 * kUs) << "seed " << seed;
    for (size_t n = 0; n < job.nodes.size(); ++n) {
      for (int64_t true_ns = kSecond; true_ns < 11 * kSecond; true_ns += kSecond / 7) {
        const int64_t shown_ns = job.Cpu(n).Read(true_ns);
        const OffsetBounds bounds = alignment.At(alignment.CpuClockOf(n), shown_ns);
        EXPECT_LE(bounds.Uncertainty(), 200 * kUs) << "seed " << seed << " node " << n;
        EXPECT_GE(job.Cpu(0).Read(true_ns), shown_ns + bounds.least_ns - 1);
        EXPECT_LE(job.Cpu(0).Read(true_ns), shown_ns + bounds.most_ns + 1);
      }
    }
  }
}

TEST(ClockAlignmentTest, BoundsHoldWhereClocksDriftAsFastAsAssumed) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const SimulatedJob job({.nodes = 3,
                            .period_ns = 900 * kMs,
                            .ahead_ns = 500 * kMs,
                            .most_drift = 90e-6,
                            .seed = seed});
    const ClockAlignment alignment(job.nodes);
    EXPECT_EQ(alignment.contradictions(), 0u);
    ExpectTrueTimesWithin(job, alignment);
  }
}

TEST(ClockAlignmentTest, MiddlesContradictNoCollective) {
  const SimulatedJob job({.seed = 3});
  const ClockAlignment alignment(job.nodes);
  for (const Meeting& meeting : alignment.meetings()) {
    int64_t entered_ns = INT64_MIN, left_ns = INT64_MAX;
    for (const Participation& member : meeting.members) {
      entered_ns =
          std::max(entered_ns, member.start_ns + alignment.OffsetAt(member.clock, member.start_ns));
      left_ns =
          std::min(left_ns, member.stop_ns + alignment.OffsetAt(member.clock, member.stop_ns));
    }
    EXPECT_LE(entered_ns, left_ns + 2 * kGpuTickNs + 4 * kUs);
  }
}

TEST(ClockAlignmentTest, WithoutCollectivesInCommonANodeKeepsItsOwnClock) {
  SimulatedJob job({.nodes = 2});
  job.nodes[1].processes[0].communicators[0].id = job.nodes[1].processes[1].communicators[0].id = 8;
  job.nodes[1].realtime_offset_ns += 12345;
  const ClockAlignment alignment(job.nodes);
  EXPECT_EQ(alignment.OffsetAt(1, job.nodes[1].begin_ns), 12345);
  EXPECT_NE(alignment.IslandOf(1), alignment.IslandOf(0));
  EXPECT_EQ(alignment.IslandOf(alignment.KernelClockOf({1, 0, 0})), alignment.IslandOf(1));
  EXPECT_EQ(alignment.IslandOf(alignment.KernelClockOf({0, 1, 0})), alignment.IslandOf(0));
}

TEST(ClockAlignmentTest, AnotherJobWithTheSameNamesIsLeftOut) {
  SimulatedJob job({.nodes = 2, .seed = 5});
  const std::vector<NodeTrace> good = job.nodes;
  for (NodeTrace& node : job.nodes) {  // a second communicator, whose two halves are of two jobs
    for (collector::TracedProcess& process : node.processes) {
      process.communicators.push_back(process.communicators[0]);
      collector::TracedCommunicator& other = process.communicators.back();
      other.id = 9;
      if (&node != &job.nodes[0]) continue;
      for (TracedOperation& operation : other.operations) ++operation.sequence;
    }
  }
  const ClockAlignment alignment(job.nodes);
  EXPECT_EQ(alignment.contradictions(), 1u);
  EXPECT_TRUE(alignment.IsBound(1, job.nodes[1].begin_ns));
}

TEST(ClockAlignmentTest, HostileTimesHarmNobody) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    SimulatedJob job({.nodes = 2, .length_ns = kSecond, .seed = static_cast<uint64_t>(round)});
    for (NodeTrace& node : job.nodes) {
      for (TracedOperation& operation : node.processes[0].communicators[0].operations) {
        int64_t* const times[] = {&operation.call_ns, &operation.start_ns, &operation.stop_ns,
                                  &operation.delivered_ns};
        if (random() % 3 == 0)
          *times[random() % 4] = static_cast<int64_t>(random()) / 4 >> random() % 62;
      }
    }
    const ClockAlignment alignment(job.nodes);
    for (size_t clock = 0; clock < alignment.clocks(); ++clock) {
      for (const int64_t time_ns : {-collector::kMostTraceNs, int64_t{0}, collector::kMostTraceNs})
        EXPECT_LE(std::abs(alignment.OffsetAt(clock, time_ns)), 2 * collector::kMostTraceNs);
    }
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
