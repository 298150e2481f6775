// SPDX-License-Identifier: Apache-2.0
#include "simulator/network/path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kMs = 1000000;

// Ranks that launch at once and start at 1 ms; all is done at 11 ms.
Path RingOf(int ranks, int steps = 40) {
  Path path{.steps = steps, .stop_ns = 11 * kMs};
  path.ranks.assign(static_cast<size_t>(ranks), {.launched_ns = 0, .start_ns = kMs});
  path.hops.assign(static_cast<size_t>(ranks), {});
  return path;
}

Path TransferOf(int steps = 40) {
  Path path = RingOf(2, steps);
  path.hops.resize(1);
  return path;
}

// The mean time from one moment of a step to another one, from `first` on.
int64_t MeanNs(const std::vector<StepTimes>& steps, int64_t StepTimes::*from,
               int64_t StepTimes::*until, size_t first = 0) {
  int64_t sum = 0;
  for (size_t i = first; i < steps.size(); ++i) sum += steps[i].*until - steps[i].*from;
  return sum / static_cast<int64_t>(steps.size() - first);
}

TEST(Path, EndsWhenTheKernelsDo) {
  for (const int overlap : {1, 2, 4, 8}) {
    for (Path path : {RingOf(4), RingOf(2), TransferOf(), TransferOf(1)}) {
      path.overlap = overlap;
      int64_t end_ns = 0;
      for (const auto& steps : StepsOf(path)) end_ns = std::max(end_ns, steps.back().consumed_ns);
      EXPECT_NEAR(static_cast<double>(end_ns), 11.0 * kMs, 0.2 * kMs) << overlap;
    }
  }
}

TEST(Path, KeepsTheOrderOfASteps) {
  for (const HopTimes& hop :
       {HopTimes{}, HopTimes{.wire = 5}, HopTimes{.receiver = 5}, HopTimes{.flush = 5}}) {
    Path path = RingOf(3);
    path.hops[1] = hop;
    for (const auto& steps : StepsOf(path)) {
      for (size_t i = 0; i < steps.size(); ++i) {
        EXPECT_LE(steps[i].taken_ns, steps[i].credit_ns);
        EXPECT_LE(std::max(steps[i].ready_ns, steps[i].credit_ns), steps[i].sent_ns);
        EXPECT_LE(steps[i].sent_ns, steps[i].received_ns);
        EXPECT_LE(steps[i].received_ns, steps[i].flushed_ns);
        EXPECT_LE(steps[i].flushed_ns, steps[i].consumed_ns);
        if (i == 0) continue;
        EXPECT_LE(steps[i - 1].ready_ns, steps[i].ready_ns);
        EXPECT_LE(steps[i - 1].taken_ns, steps[i].taken_ns);
        EXPECT_LE(steps[i - 1].received_ns, steps[i].received_ns);
        EXPECT_LE(steps[i - 1].flushed_ns, steps[i].flushed_ns);
        EXPECT_LE(steps[i - 1].consumed_ns, steps[i].consumed_ns);
      }
    }
  }
}

TEST(Path, NeverUsesABufferBeforeItIsFree) {
  for (const int overlap : {1, 2, 4, 8}) {
    Path path = TransferOf();
    path.overlap = overlap;
    path.ranks[1].start_ns = 6 * kMs;
    const std::vector<StepTimes> steps = StepsOf(path)[0];
    for (size_t i = static_cast<size_t>(overlap); i < steps.size(); ++i) {
      EXPECT_GE(steps[i].ready_ns, steps[i - static_cast<size_t>(overlap)].sent_ns);
      EXPECT_GE(steps[i].taken_ns, steps[i - static_cast<size_t>(overlap)].consumed_ns);
    }
  }
}

TEST(Path, HasNoDataBeforeALateSenderAndUsesUpTheBuffersOfALateReceiver) {
  Path path = TransferOf();
  path.ranks[0].start_ns = 6 * kMs;
  std::vector<StepTimes> steps = StepsOf(path)[0];
  EXPECT_GT(steps[0].ready_ns, 6 * kMs);
  EXPECT_LT(steps[0].taken_ns, kMs);  // the receiver waits for the network

  path = TransferOf();
  path.ranks[1].start_ns = 6 * kMs;
  steps = StepsOf(path)[0];
  EXPECT_LT(steps[7].received_ns, 6 * kMs);
  EXPECT_GT(steps[0].consumed_ns, 6 * kMs);
  EXPECT_LT(steps[8].ready_ns, 6 * kMs);   // the sender has data
  EXPECT_GT(steps[8].credit_ns, 6 * kMs);  // and no credit
}

TEST(Path, ALateRankOfARingHoldsUpWhatTheOthersSendAfterTheirOwnPart) {
  Path path = RingOf(4, 48);
  path.ranks[2].start_ns = 6 * kMs;
  const auto hops = StepsOf(path);
  EXPECT_GT(hops[2][0].ready_ns, 6 * kMs);      // its own first step
  EXPECT_LT(hops[3][0].ready_ns, 2 * kMs);      // the own part of the rank behind it
  EXPECT_GT(hops[3].back().ready_ns, 6 * kMs);  // and what it hands on
}

TEST(Path, EachCauseTakesTheTimeOfItsHop) {
  Path path = RingOf(4);
  path.hops[1] = {.wire = 8};
  auto hops = StepsOf(path);
  const auto wire = [](const StepTimes& s) {
    return s.sent_ns - std::max(s.ready_ns, s.credit_ns);
  };
  EXPECT_GT(wire(hops[1][20]), 5 * wire(hops[2][20]));

  path.hops[1] = {.receiver = 8};
  hops = StepsOf(path);
  const auto credit = [](const StepTimes& s) { return s.credit_ns - s.ready_ns; };
  EXPECT_GT(credit(hops[1][20]), 0);
  EXPECT_LT(credit(hops[2][20]), 0);  // the credit was there first

  path.hops[1] = {.flush = 8};
  hops = StepsOf(path);
  EXPECT_GT(MeanNs(hops[1], &StepTimes::received_ns, &StepTimes::flushed_ns),
            20 * MeanNs(hops[2], &StepTimes::received_ns, &StepTimes::flushed_ns));
}

TEST(Path, IsTheSameWhicheverRankComputesIt) {
  Path path = RingOf(4);
  path.ranks[1].start_ns = 3 * kMs;
  path.ranks[3].launched_ns = 2 * kMs;
  path.hops[2] = {.wire = 3};
  Path turned = path;
  std::rotate(turned.ranks.begin(), turned.ranks.begin() + 1, turned.ranks.end());
  std::rotate(turned.hops.begin(), turned.hops.begin() + 1, turned.hops.end());
  const auto hops = StepsOf(path);
  const auto again = StepsOf(turned);
  for (size_t hop = 0; hop < 4; ++hop) {
    for (size_t step = 0; step < hops[hop].size(); ++step) {
      EXPECT_EQ(hops[(hop + 1) % 4][step].ready_ns, again[hop][step].ready_ns);
      EXPECT_EQ(hops[(hop + 1) % 4][step].consumed_ns, again[hop][step].consumed_ns);
    }
  }
}

TEST(Path, StopsWhereAWireIsDeadOrARankNeverComes) {
  Path path = RingOf(2);
  path.stop_ns = kNever;
  for (const auto& steps : StepsOf(path)) {
    EXPECT_LT(steps[0].ready_ns, kNever);
    EXPECT_EQ(steps[0].sent_ns, kNever);
    EXPECT_EQ(steps.back().ready_ns, kNever);
  }
  path.ranks[0].start_ns = kNever;
  const auto hops = StepsOf(path);
  EXPECT_EQ(hops[0][0].ready_ns, kNever);     // the rank that never comes sends nothing
  EXPECT_LT(hops[1][0].received_ns, kNever);  // its buffers take what the other one sends
  EXPECT_EQ(hops[1][0].consumed_ns, kNever);
}

}  // namespace
}  // namespace nccl_exporter::sim
