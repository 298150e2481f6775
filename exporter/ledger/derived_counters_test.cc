// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/derived_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "exporter/ledger/played_node.h"

namespace nccl_exporter::exporter {
namespace {

using collector::Traffic;

constexpr uint64_t kMib = 1 << 20;
constexpr int64_t kMillisecondNs = 1'000'000;

class Derived : public testing::Test {
 protected:
  // A snapshot of an empty node, so that what comes next is new.
  Derived() { counters_.Advance(node_.node(), node_.now()); }

  // Some operations stay untimed.
  void LoseTimes() { node_.process().losses[static_cast<size_t>(Loss::kClockMismatch)] = 1; }
  void Do(Function function, uint64_t bytes, int64_t ns, int times = 1) {
    for (int i = 0; i < times; ++i)
      AddOperation(node_.comm(), function, bytes, static_cast<uint64_t>(ns));
  }
  void Untimed(Function function, uint64_t bytes, int times = 1) { Do(function, bytes, 0, times); }
  uint64_t Kernel(Traffic traffic = Traffic::kCollective) {
    return node_.See(counters_).kernel_ns[static_cast<size_t>(traffic)];
  }
  std::optional<collector::StepCounts> Steps() { return node_.See(counters_).steps; }
  // Steps of a job, `step_ns` each, with a snapshot every five seconds.
  template <typename Step>
  void Play(int steps, int64_t step_ns, Step step) {
    for (int i = 0; i < steps; ++i) {
      step();
      node_.Pass(step_ns);
      since_snapshot_ns_ += step_ns;
      if (since_snapshot_ns_ < 5 * kSecondNs) continue;
      counters_.Advance(node_.node(), node_.now());
      node_.comm().recent.clear();
      since_snapshot_ns_ = 0;
    }
  }

  PlayedNode node_;
  DerivedCounters counters_;
  int64_t since_snapshot_ns_ = 0;
};

TEST_F(Derived, KernelTimeIsTheMeasuredTimeWhereEverythingIsTimed) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 3000, 7);
  Do(Function::kSend, kMib, 500, 2);
  Do(Function::kRecv, kMib, 800, 3);
  EXPECT_EQ(Kernel(), 21000u);
  EXPECT_EQ(Kernel(Traffic::kPointToPoint), 3400u);
}

TEST_F(Derived, OperationsInFlightAreNotEstimatedWhereEverythingIsTimed) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 3000, 7);
  Untimed(Function::kAllReduce, kMib, 100);
  EXPECT_EQ(Kernel(), 21000u);
}

TEST_F(Derived, UntimedOperationsTakeTheMeanOfTheirCollectiveAndSize) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  Do(Function::kAllReduce, 64 * kMib, 50000, 2);
  Do(Function::kBroadcast, kMib, 300, 1);
  Untimed(Function::kAllReduce, kMib, 90);
  Untimed(Function::kAllReduce, 64 * kMib, 18);
  Untimed(Function::kBroadcast, kMib, 9);
  EXPECT_EQ(Kernel(), 100 * 1000 + 20 * 50000 + 10 * 300u);
}

TEST_F(Derived, UntimedSendsAndReceivesTakeTheirOwnMeans) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kSend, kMib, 1000);
  Do(Function::kRecv, kMib, 7000);
  Untimed(Function::kSend, kMib, 3);
  Untimed(Function::kRecv, kMib, 3);
  EXPECT_EQ(Kernel(Traffic::kPointToPoint), 4000 + 28000u);
}

TEST_F(Derived, AnOperationThatALossLeftUntimedIsEstimated) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  node_.process().losses[static_cast<size_t>(Loss::kOverlap)] = 1;
  Untimed(Function::kAllReduce, kMib);
  EXPECT_EQ(Kernel(), 11000u);
}

TEST_F(Derived, LossesOfOtherCommunicatorsSlotsEstimateNothing) {
  node_.Add(0);
  node_.process().losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)] = 1;
  node_.process().losses[static_cast<size_t>(Loss::kForeignProcess)] = 1;
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib);
  EXPECT_EQ(Kernel(), 10000u);
}

TEST_F(Derived, AnEstimateOfAnOperationInFlightGivesWayToItsTime) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib);
  EXPECT_EQ(Kernel(), 11000u);
  // It took less than the mean: the sum waits until it has grown again.
  collector::SizeClassSnapshot& size =
      node_.comm().functions.Change(static_cast<size_t>(Function::kAllReduce)).sizes[3];
  ++size.timed_operations;
  size.busy_ns += 400;
  EXPECT_EQ(Kernel(), 11000u);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 11400u);
}

TEST_F(Derived, OperationsWaitForTheFirstMeanButNotForLong) {
  node_.Add(0);
  LoseTimes();
  Untimed(Function::kAllReduce, kMib, 10);
  EXPECT_EQ(Kernel(), 0u);
  node_.Pass(kSecondNs);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_NEAR(static_cast<double>(Kernel()), 10000, 1000);
}

TEST_F(Derived, OperationsOfAnHourAgoAreNotCountedAtTheFirstMean) {
  node_.Add(0);
  LoseTimes();
  Untimed(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 0u);
  node_.Pass(3600 * kSecondNs);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 1000u);
}

TEST_F(Derived, AMeanThatChangesIsFollowedWithinAMinute) {
  node_.Add(0);
  LoseTimes();
  Play(3600, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 1000);
    Untimed(Function::kAllReduce, kMib, 9);
  });
  Play(60, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 5000);
    Untimed(Function::kAllReduce, kMib, 9);
  });
  const uint64_t before = Kernel();
  Play(60, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 5000);
    Untimed(Function::kAllReduce, kMib, 9);
  });
  EXPECT_NEAR(static_cast<double>(Kernel() - before), 60 * 10 * 5000, 60 * 10 * 5000 * 0.01);
}

TEST_F(Derived, NothingIsEstimatedOnceTimingHasEnded) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  node_.comm().timing_source = TimingSource::kNone;
  node_.comm().timing_reason = TimingReason::kDrift;
  Untimed(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 10000u);
}

TEST_F(Derived, AMeanThatIsTooOldEstimatesNothing) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  node_.Pass(DerivedTimes().mean_lasts_ns + 1);
  Untimed(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 10000u);
}

// Times of 200 ms in every 2 s only, operations of changing length, snapshots at any time.
TEST_F(Derived, KernelTimeWithFewTimesIsThatOfTheJobAndNeverDecreases) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> noise(0, 0.3);
  node_.Add(0);
  LoseTimes();
  double truth = 0;
  uint64_t last = 0;
  int64_t next_ns = 0;
  for (int64_t at = 0; at < 600 * kSecondNs; at += 5 * kMillisecondNs) {
    const int64_t window = at / (2 * kSecondNs);
    const int64_t open = 1800 * static_cast<int64_t>(window * 7919 % 1000) / 1000 * kMillisecondNs;
    const int64_t phase = at % (2 * kSecondNs) - open;
    // Longer in the second half of the job.
    const double ns = (at < 300 * kSecondNs ? 1e6 : 2.5e6) * noise(random);
    truth += std::floor(ns);
    Do(Function::kAllReduce, kMib,
       phase >= 0 && phase < 200 * kMillisecondNs ? static_cast<int64_t>(ns) : 0);
    node_.Pass(5 * kMillisecondNs);
    if (at < next_ns) continue;
    next_ns = at + static_cast<int64_t>(random() % 7000) * kMillisecondNs;
    const uint64_t now = Kernel();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_NEAR(static_cast<double>(Kernel()), truth, 0.02 * truth);
}

TEST_F(Derived, WhatIsNotKnownOfThePastStartsAtZeroWhereTimesAreLost) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib, 90);
  Do(Function::kSend, kMib, 1000, 10);
  node_.Pass(3600 * kSecondNs);
  DerivedCounters later;
  EXPECT_EQ(node_.KernelNs(later), 0u);
  EXPECT_EQ(node_.comm().derived->since_realtime_ns, node_.now().realtime_ns);
  EXPECT_EQ(node_.process().derived->point_to_point_operations, 0u);
  EXPECT_EQ(node_.process().derived->since_realtime_ns, node_.now().realtime_ns);
  Untimed(Function::kAllReduce, kMib, 3);
  EXPECT_EQ(node_.KernelNs(later), 3000u);
  EXPECT_EQ(node_.process().derived->kernel_ns, 3000u);
}

TEST_F(Derived, ASumThatIsExactNeedsNoPast) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib);  // in flight
  const uint64_t before = Kernel();
  node_.Pass(3600 * kSecondNs);
  DerivedCounters later;
  EXPECT_EQ(node_.KernelNs(later), before);
  EXPECT_EQ(node_.comm().derived->since_realtime_ns, node_.comm().created_realtime_ns);
  // The process may have had others, which are gone.
  EXPECT_EQ(node_.process().derived->kernel_ns, 0u);
}

TEST_F(Derived, MoreUntimedOperationsThanCanBeInFlightAreNoExactSum) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib, 2000);
  node_.Pass(3600 * kSecondNs);
  DerivedCounters later;
  EXPECT_EQ(node_.KernelNs(later), 0u);
}

// Operations by copy engine, which stay untimed. If a later daemon served the whole past, PromQL
// would count it once more.
TEST_F(Derived, ASumThatIsNotExactIsNotExactForALaterDaemonEither) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllGather, kMib, 1300);
  Untimed(Function::kAllReduce, kMib, 300);
  node_.comm().in_flight.resize(300);
  node_.Pass(3600 * kSecondNs);
  DerivedCounters first;
  EXPECT_EQ(node_.KernelNs(first), 0u);
  node_.comm().in_flight.clear();
  collector::SizeClassSnapshot& size =
      node_.comm().functions.Change(static_cast<size_t>(Function::kAllReduce)).sizes[3];
  size.timed_operations += 300;
  size.busy_ns += 300 * 1000;
  DerivedCounters second;
  EXPECT_EQ(node_.KernelNs(second), 0u);
}

TEST_F(Derived, ASlotUsedAgainCountsFromZeroAndItsProcessGoesOn) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Do(Function::kSend, kMib, 1000, 2);
  EXPECT_EQ(Kernel(), 10000u);
  EXPECT_EQ(node_.process().derived->kernel_ns, 12000u);
  node_.Pass(kSecondNs);
  node_.process().communicators.clear();
  node_.Add(0, 2);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 1000u);
  EXPECT_EQ(node_.process().derived->kernel_ns, 13000u);
  EXPECT_EQ(node_.process().derived->point_to_point_operations, 2u);
}

TEST_F(Derived, ACommunicatorThatIsGoneStaysInTheSumOfItsProcess) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  node_.Add(1);
  counters_.Advance(node_.node(), node_.now());
  EXPECT_EQ(node_.process().derived->kernel_ns, 10000u);
  const collector::CommunicatorSnapshot gone = node_.comm();
  node_.process().communicators.erase(node_.process().communicators.begin());
  node_.Pass(5 * kSecondNs);
  counters_.Advance(node_.node(), node_.now());
  EXPECT_EQ(node_.process().derived->kernel_ns, 10000u);
  // A snapshot had missed it only.
  node_.process().communicators.push_back(gone);
  node_.Pass(5 * kSecondNs);
  counters_.Advance(node_.node(), node_.now());
  EXPECT_EQ(node_.process().derived->kernel_ns, 10000u);
}

TEST_F(Derived, AProcessThatASnapshotMissedGoesOn) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  collector::NodeSnapshot empty;
  node_.Pass(5 * kSecondNs);
  counters_.Advance(empty, node_.now());
  node_.Pass(5 * kSecondNs);
  Untimed(Function::kAllReduce, kMib, 10);
  EXPECT_EQ(Kernel(), 20000u);
}

TEST_F(Derived, CommunicatorsThatNoSnapshotHasAreForgottenAndTheirProcessGoesOn) {
  node_.Add(0);
  node_.Add(1);
  Do(Function::kAllReduce, kMib, 1000, 10);
  counters_.Advance(node_.node(), node_.now());
  EXPECT_EQ(counters_.remembered(), 3u);
  node_.process().communicators.erase(node_.process().communicators.begin());
  Play(14, 5 * kSecondNs, [] {});
  EXPECT_EQ(counters_.remembered(), 2u);
  EXPECT_EQ(node_.process().derived->kernel_ns, 10000u);
}

// As a forged segment does, which has 4,095 slots.
TEST_F(Derived, SlotsThatAlternateTakeNoMoreThanTheLimit) {
  constexpr uint32_t kSlots = 300;
  for (uint32_t i = 0; i < 20; ++i) {
    node_.process().communicators.clear();
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      node_.Add(i * kSlots + slot);
      AddOperation(node_.process().communicators.back(), Function::kAllReduce, kMib, 1000);
    }
    node_.Pass(kSecondNs);
    counters_.Advance(node_.node(), node_.now());
    EXPECT_LE(counters_.remembered(), kMostAbsent + kSlots + 1);
    EXPECT_EQ(node_.process().derived->kernel_ns, 1000u * (i + 1) * kSlots);
  }
}

TEST_F(Derived, AUserWithTooManyProcessesLosesNoCountsOfOthers) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  collector::NodeSnapshot forged;
  for (uint64_t i = 0; i < 100; ++i) {
    forged.processes.push_back(EmptyProcess(i));
    forged.processes.back().uid = node_.process().uid + 1;
    forged.processes.back().file.inode = 5000 + i;
  }
  for (int i = 1; i <= 50; ++i) {
    for (collector::ProcessSnapshot& process : forged.processes) process.start_realtime_ns = i;
    node_.Pass(kSecondNs / 10);
    counters_.Advance(forged, node_.now());
    EXPECT_LE(counters_.remembered(), kMostAbsent + 102) << i;
  }
  Untimed(Function::kAllReduce, kMib, 10);
  EXPECT_EQ(Kernel(), 20000u);
}

TEST_F(Derived, AnotherProcessInTheSameFileIsAnother) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  node_.Pass(5 * kSecondNs);
  node_.process().start_realtime_ns = node_.now().realtime_ns;
  node_.process().communicators.clear();
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 1000u);
  EXPECT_EQ(node_.process().derived->kernel_ns, 1000u);
}

TEST_F(Derived, ASegmentOfAKilledProcessKeepsItsCounts) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib, 5);
  const uint64_t before = Kernel();
  node_.process().is_alive = false;
  for (int i = 0; i < 100; ++i) {
    node_.Pass(5 * kSecondNs);
    EXPECT_EQ(Kernel(), before);
  }
}

TEST_F(Derived, CountsThatDecreaseInADamagedSegmentDecreaseNothing) {
  node_.Add(0);
  LoseTimes();
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib, 10);
  const uint64_t before = Kernel();
  for (const uint64_t forged : {uint64_t{0}, ~uint64_t{0}, uint64_t{5}, ~uint64_t{0} / 2}) {
    collector::SizeClassSnapshot& size =
        node_.comm().functions.Change(static_cast<size_t>(Function::kAllReduce)).sizes[3];
    size = {.operations = ~forged,
            .bytes = forged,
            .timed_operations = forged,
            .timed_bytes = forged,
            .busy_ns = forged};
    node_.Pass(5 * kSecondNs);
    EXPECT_GE(Kernel(), before);
  }
}

// Forty collectives and one barrier per step.
TEST_F(Derived, StepsAreOperationsOfTheRarestRegularCollectiveAndSize) {
  node_.Add(0);
  Do(Function::kBroadcast, 64 * kMib, 1000, 3);  // of the initialization
  Play(150, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 1000, 40);
    Do(Function::kAllReduce, 8, 100);
    Do(Function::kReduceScatter, kMib, 4000, 2);
  });
  ASSERT_TRUE(Steps().has_value());
  EXPECT_EQ(Steps()->steps, 150u);
  Play(1000, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 1000, 40);
    Do(Function::kAllReduce, 8, 100);
    Do(Function::kReduceScatter, kMib, 4000, 2);
  });
  EXPECT_EQ(Steps()->steps, 1150u);
}

TEST_F(Derived, EachRegularCollectiveAndSizeHasItsWaitPerStep) {
  node_.Add(0);
  Do(Function::kBroadcast, 64 * kMib, 1000, 3);  // of the initialization
  Play(200, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 1000, 40);
    Do(Function::kAllReduce, 8, 100);
    Do(Function::kReduceScatter, kMib, 4000, 2);
  });
  const std::map<collector::OperationKind, uint64_t> waits_ns{
      {{.function = Function::kAllReduce, .size_class = 3}, 200u * 1000},
      {{.function = Function::kAllReduce, .size_class = 0}, 200u * 100},
      {{.function = Function::kReduceScatter, .size_class = 3}, 200u * 4000}};
  EXPECT_EQ(Steps()->waits_ns, waits_ns);
}

// The first group of a step waits for a late rank. The plugin shares its time among its operations.
TEST_F(Derived, TheWaitIsThatOfTheLongestLaunchInAStep) {
  node_.Add(0);
  uint64_t sequence = 0;
  const auto group = [&](uint64_t launch_ns, int members) {
    Do(Function::kAllGather, kMib, static_cast<int64_t>(launch_ns) / members, members);
    std::vector<collector::RecentOperation>& recent = node_.comm().recent;
    for (int i = 0; i < members; ++i) {
      recent.push_back({.function = Function::kAllGather,
                        .size_class = 3,
                        .sequence = ++sequence,
                        .launch_ns = launch_ns,
                        .members = static_cast<uint64_t>(members)});
    }
  };
  const auto step = [&] {
    group(60000, 4);
    group(24000, 2);
    Do(Function::kAllReduce, 8, 100);
  };
  Play(100, kSecondNs, step);
  const auto wait_ns = [&] {
    return Steps()->waits_ns.at({.function = Function::kAllGather, .size_class = 3});
  };
  const uint64_t before_ns = wait_ns();
  Play(100, kSecondNs, step);
  EXPECT_NEAR(static_cast<double>(wait_ns() - before_ns), 100 * 60000, 100 * 60);
}

// The limit leaves out those with the fewest bytes, although they take longest.
TEST_F(Derived, AtMostFourCollectivesAndSizesHaveWaits) {
  node_.Add(0);
  const auto step = [&](Function function) {
    Do(function, 8, 9000);
    Do(Function::kAllReduce, 64 * 1024, 100);
    Do(Function::kAllReduce, kMib, 200);
    Do(Function::kAllReduce, 16 * kMib, 300);
    Do(Function::kAllReduce, 256 * kMib, 400);
  };
  Play(100, kSecondNs, [&] { step(Function::kAllReduce); });
  ASSERT_EQ(Steps()->waits_ns.size(), collector::kMostStepWaits);
  EXPECT_FALSE(Steps()->waits_ns.contains({.function = Function::kAllReduce, .size_class = 0}));
  // One that no longer occurs makes room.
  Play(100, kSecondNs, [&] {
    Do(Function::kAllReduce, 8, 9000);
    Do(Function::kAllReduce, kMib, 200);
    Do(Function::kAllReduce, 16 * kMib, 300);
    Do(Function::kAllReduce, 256 * kMib, 400);
  });
  ASSERT_EQ(Steps()->waits_ns.size(), collector::kMostStepWaits);
  EXPECT_FALSE(Steps()->waits_ns.contains({.function = Function::kAllReduce, .size_class = 2}));
  EXPECT_TRUE(Steps()->waits_ns.contains({.function = Function::kAllReduce, .size_class = 0}));
}

TEST_F(Derived, TwoCollectivesPerStepAreNotCountedInTurn) {
  node_.Add(0);
  for (int i = 0; i < 400; ++i) {
    Play(1, 1700 * kMillisecondNs, [&] { Do(Function::kAllGather, kMib, 1000); });
    Play(1, 1700 * kMillisecondNs, [&] { Do(Function::kReduceScatter, kMib, 1000); });
  }
  EXPECT_EQ(Steps()->steps, 400u);
}

TEST_F(Derived, StepsAsLongAsTheLongestAreCounted) {
  node_.Add(0);
  Play(40, 30 * kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000); });
  EXPECT_EQ(Steps()->steps, 40u);
}

TEST_F(Derived, ACollectiveThatIsRarerThanTheLongestStepIsNoStep) {
  node_.Add(0);
  Play(20, 5 * kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 2); });
  for (int i = 0; i < 10; ++i) {
    Do(Function::kAllGather, 64 * kMib, 100000, 8);  // a checkpoint
    Play(60, 5 * kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 2); });
  }
  EXPECT_EQ(Steps()->steps, 20 * 2 + 600 * 2u);
}

TEST_F(Derived, StepsGoOnWhenAnotherCollectiveBecomesTheRarest) {
  node_.Add(0);
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 10); });
  uint64_t last = Steps()->steps;
  EXPECT_EQ(last, 1000u);
  for (int i = 0; i < 30; ++i) {
    Play(10, kSecondNs, [&] {
      Do(Function::kAllReduce, kMib, 1000, 10);
      Do(Function::kAllReduce, 8, 100);
    });
    EXPECT_GE(Steps()->steps, last);
    last = Steps()->steps;
  }
  Play(100, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 1000, 10);
    Do(Function::kAllReduce, 8, 100);
  });
  EXPECT_EQ(Steps()->steps - last, 100u);
}

TEST_F(Derived, APauseOfTheJobLosesNoStep) {
  node_.Add(0);
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 10); });
  Play(100, 5 * kSecondNs, [] {});
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 10); });
  EXPECT_EQ(Steps()->steps, 2000u);
}

TEST_F(Derived, OneNodeHasNoSteps) {
  node_.Add(0).nodes = 1;
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000); });
  EXPECT_FALSE(Steps().has_value());
}

TEST_F(Derived, ACommunicatorWithFewerRanksHereThanItHasSpansNodes) {
  node_.Add(0).nodes = 0;
  node_.comm().ranks = 2;
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000); });
  EXPECT_TRUE(Steps().has_value());
  node_.comm().ranks = 1;
  EXPECT_FALSE(Steps().has_value());
  node_.comm().ranks = 0;
  EXPECT_FALSE(Steps().has_value());
}

}  // namespace
}  // namespace nccl_exporter::exporter
