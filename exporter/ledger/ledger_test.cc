// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "exporter/testing/played_node.h"

namespace nccl_exporter::exporter {
namespace {

using collector::Traffic;

constexpr uint64_t kMib = 1 << 20;
constexpr int64_t kMillisecondNs = 1'000'000;

class LedgerTest : public testing::Test {
 protected:
  // A snapshot of an empty node, so that what comes next is new.
  LedgerTest() { node_.Enter(ledger_); }

  void Do(Function function, uint64_t bytes, int64_t ns, int times = 1) {
    for (int i = 0; i < times; ++i)
      AddOperation(node_.comm(), function, bytes, static_cast<uint64_t>(ns));
  }
  void Untimed(Function function, uint64_t bytes, int times = 1) { Do(function, bytes, 0, times); }
  uint64_t Kernel(Traffic traffic = Traffic::kCollective) {
    return node_.See(ledger_).kernel_ns[static_cast<size_t>(traffic)];
  }
  std::optional<StepCounts> Steps() { return node_.See(ledger_).steps; }
  // Steps of a job, `step_ns` each, with a snapshot every five seconds.
  template <typename Step>
  void Play(int steps, int64_t step_ns, Step step) {
    for (int i = 0; i < steps; ++i) {
      step();
      node_.Pass(step_ns);
      since_snapshot_ns_ += step_ns;
      if (since_snapshot_ns_ < 5 * kSecondNs) continue;
      node_.Enter(ledger_);
      node_.comm().recent.clear();
      since_snapshot_ns_ = 0;
    }
  }

  PlayedNode node_;
  Ledger ledger_;
  int64_t since_snapshot_ns_ = 0;
};

TEST_F(LedgerTest, KernelTimeIsTheMeasuredTimeWhereEverythingIsTimed) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 3000, 7);
  Do(Function::kSend, kMib, 500, 2);
  Do(Function::kRecv, kMib, 800, 3);
  EXPECT_EQ(Kernel(), 21000u);
  EXPECT_EQ(Kernel(Traffic::kPointToPoint), 3400u);
}

TEST_F(LedgerTest, OperationsWithoutTimesAddNothingToKernelTime) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 3000, 7);
  Untimed(Function::kAllReduce, kMib, 100);
  Untimed(Function::kSend, kMib, 3);
  EXPECT_EQ(Kernel(), 21000u);
  EXPECT_EQ(Kernel(Traffic::kPointToPoint), 0u);
}

// The segment has the sum.
TEST_F(LedgerTest, KernelTimeOfARankNeedsNoPast) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib);  // in flight
  const uint64_t before = Kernel();
  node_.Pass(3600 * kSecondNs);
  Ledger later;
  EXPECT_EQ(node_.KernelNs(later), before);
  // The process may have had others, which are gone.
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 0u);
  EXPECT_EQ(node_.ProcessSums().since_realtime_ns, node_.now().realtime_ns);
  Do(Function::kAllReduce, kMib, 1000, 3);
  EXPECT_EQ(node_.KernelNs(later), before + 3000);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 3000u);
}

TEST_F(LedgerTest, ASlotUsedAgainCountsFromZeroAndItsProcessGoesOn) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Do(Function::kSend, kMib, 1000, 2);
  EXPECT_EQ(Kernel(), 10000u);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 12000u);
  node_.Pass(kSecondNs);
  node_.process().communicators.clear();
  node_.Add(0, 2);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 1000u);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 13000u);
  EXPECT_EQ(node_.ProcessSums().point_to_point_operations, 2u);
}

TEST_F(LedgerTest, ACommunicatorThatIsGoneStaysInTheSumOfItsProcess) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  node_.Add(1);
  node_.Enter(ledger_);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 10000u);
  const collector::CommunicatorSnapshot gone = node_.comm();
  node_.process().communicators.erase(node_.process().communicators.begin());
  node_.Pass(5 * kSecondNs);
  node_.Enter(ledger_);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 10000u);
  // A snapshot had missed it only.
  node_.process().communicators.push_back(gone);
  node_.Pass(5 * kSecondNs);
  node_.Enter(ledger_);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 10000u);
}

TEST_F(LedgerTest, AProcessThatASnapshotMissedGoesOn) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  collector::NodeSnapshot empty;
  node_.Pass(5 * kSecondNs);
  ledger_.Enter(std::make_shared<const collector::NodeSnapshot>(empty), node_.now());
  node_.Pass(5 * kSecondNs);
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 20000u);
}

TEST_F(LedgerTest, CommunicatorsThatNoSnapshotHasAreForgottenAndTheirProcessGoesOn) {
  node_.Add(0);
  node_.Add(1);
  Do(Function::kAllReduce, kMib, 1000, 10);
  node_.Enter(ledger_);
  EXPECT_EQ(ledger_.remembered(), 3u);
  node_.process().communicators.erase(node_.process().communicators.begin());
  Play(14, 5 * kSecondNs, [] {});
  EXPECT_EQ(ledger_.remembered(), 2u);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 10000u);
}

// As a forged segment does, which has 4,095 slots.
TEST_F(LedgerTest, SlotsThatAlternateTakeNoMoreThanTheLimit) {
  constexpr uint32_t kSlots = 300;
  for (uint32_t i = 0; i < 20; ++i) {
    node_.process().communicators.clear();
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      node_.Add(i * kSlots + slot);
      AddOperation(node_.process().communicators.back(), Function::kAllReduce, kMib, 1000);
    }
    node_.Pass(kSecondNs);
    node_.Enter(ledger_);
    EXPECT_LE(ledger_.remembered(), kMostAbsent + kSlots + 1);
    EXPECT_EQ(node_.ProcessSums().kernel_ns, 1000u * (i + 1) * kSlots);
  }
}

TEST_F(LedgerTest, AUserWithTooManyProcessesLosesNoCountsOfOthers) {
  node_.Add(0);
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
    ledger_.Enter(std::make_shared<const collector::NodeSnapshot>(forged), node_.now());
    EXPECT_LE(ledger_.remembered(), kMostAbsent + 102) << i;
  }
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 20000u);
}

TEST_F(LedgerTest, AnotherProcessInTheSameFileIsAnother) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  EXPECT_EQ(Kernel(), 10000u);
  node_.Pass(5 * kSecondNs);
  node_.process().start_realtime_ns = node_.now().realtime_ns;
  node_.process().communicators.clear();
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000);
  EXPECT_EQ(Kernel(), 1000u);
  EXPECT_EQ(node_.ProcessSums().kernel_ns, 1000u);
}

TEST_F(LedgerTest, ASegmentOfAKilledProcessKeepsItsCounts) {
  node_.Add(0);
  Do(Function::kAllReduce, kMib, 1000, 10);
  Untimed(Function::kAllReduce, kMib, 5);
  const uint64_t before = Kernel();
  node_.process().is_alive = false;
  for (int i = 0; i < 100; ++i) {
    node_.Pass(5 * kSecondNs);
    EXPECT_EQ(Kernel(), before);
  }
}

TEST_F(LedgerTest, CountsThatDecreaseInADamagedSegmentDecreaseNothing) {
  node_.Add(0);
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
TEST_F(LedgerTest, StepsAreOperationsOfTheRarestRegularCollectiveAndSize) {
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

TEST_F(LedgerTest, EachRegularCollectiveAndSizeHasItsWaitPerStep) {
  node_.Add(0);
  Do(Function::kBroadcast, 64 * kMib, 1000, 3);  // of the initialization
  Play(200, kSecondNs, [&] {
    Do(Function::kAllReduce, kMib, 1000, 40);
    Do(Function::kAllReduce, 8, 100);
    Do(Function::kReduceScatter, kMib, 4000, 2);
  });
  const std::map<OperationKind, uint64_t> waits_ns{
      {{.function = Function::kAllReduce, .size_class = 3}, 200u * 1000},
      {{.function = Function::kAllReduce, .size_class = 0}, 200u * 100},
      {{.function = Function::kReduceScatter, .size_class = 3}, 200u * 4000}};
  EXPECT_EQ(Steps()->waits_ns, waits_ns);
}

// The first group of a step waits for a late rank. The plugin shares its time among its operations.
TEST_F(LedgerTest, TheWaitIsThatOfTheLongestLaunchInAStep) {
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
TEST_F(LedgerTest, AtMostFourCollectivesAndSizesHaveWaits) {
  node_.Add(0);
  const auto step = [&](Function function) {
    Do(function, 8, 9000);
    Do(Function::kAllReduce, 64 * 1024, 100);
    Do(Function::kAllReduce, kMib, 200);
    Do(Function::kAllReduce, 16 * kMib, 300);
    Do(Function::kAllReduce, 256 * kMib, 400);
  };
  Play(100, kSecondNs, [&] { step(Function::kAllReduce); });
  ASSERT_EQ(Steps()->waits_ns.size(), kMostStepWaits);
  EXPECT_FALSE(Steps()->waits_ns.contains({.function = Function::kAllReduce, .size_class = 0}));
  // One that no longer occurs makes room.
  Play(100, kSecondNs, [&] {
    Do(Function::kAllReduce, 8, 9000);
    Do(Function::kAllReduce, kMib, 200);
    Do(Function::kAllReduce, 16 * kMib, 300);
    Do(Function::kAllReduce, 256 * kMib, 400);
  });
  ASSERT_EQ(Steps()->waits_ns.size(), kMostStepWaits);
  EXPECT_FALSE(Steps()->waits_ns.contains({.function = Function::kAllReduce, .size_class = 2}));
  EXPECT_TRUE(Steps()->waits_ns.contains({.function = Function::kAllReduce, .size_class = 0}));
}

TEST_F(LedgerTest, TwoCollectivesPerStepAreNotCountedInTurn) {
  node_.Add(0);
  for (int i = 0; i < 400; ++i) {
    Play(1, 1700 * kMillisecondNs, [&] { Do(Function::kAllGather, kMib, 1000); });
    Play(1, 1700 * kMillisecondNs, [&] { Do(Function::kReduceScatter, kMib, 1000); });
  }
  EXPECT_EQ(Steps()->steps, 400u);
}

TEST_F(LedgerTest, StepsAsLongAsTheLongestAreCounted) {
  node_.Add(0);
  Play(40, 30 * kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000); });
  EXPECT_EQ(Steps()->steps, 40u);
}

TEST_F(LedgerTest, ACollectiveThatIsRarerThanTheLongestStepIsNoStep) {
  node_.Add(0);
  Play(20, 5 * kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 2); });
  for (int i = 0; i < 10; ++i) {
    Do(Function::kAllGather, 64 * kMib, 100000, 8);  // a checkpoint
    Play(60, 5 * kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 2); });
  }
  EXPECT_EQ(Steps()->steps, 20 * 2 + 600 * 2u);
}

TEST_F(LedgerTest, StepsGoOnWhenAnotherCollectiveBecomesTheRarest) {
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

TEST_F(LedgerTest, APauseOfTheJobLosesNoStep) {
  node_.Add(0);
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 10); });
  Play(100, 5 * kSecondNs, [] {});
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000, 10); });
  EXPECT_EQ(Steps()->steps, 2000u);
}

TEST_F(LedgerTest, OneNodeHasNoSteps) {
  node_.Add(0).nodes = 1;
  Play(100, kSecondNs, [&] { Do(Function::kAllReduce, kMib, 1000); });
  EXPECT_FALSE(Steps().has_value());
}

TEST_F(LedgerTest, ACommunicatorWithFewerRanksHereThanItHasSpansNodes) {
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
