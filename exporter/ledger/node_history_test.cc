// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/node_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecondNs = 1000000000;
constexpr int64_t kCreatedNs = 1700000001 * kSecondNs;  // as EmptyCommunicator() has it

// Two ranks of one communicator, whose steps are 5 s apart.
class NodeHistoryTest : public testing::Test {
 protected:
  NodeHistoryTest() {
    for (uint64_t rank = 0; rank < 2; ++rank) {
      node_.processes.push_back(EmptyProcess(10 + rank));
      node_.processes.back().segment = std::to_string(rank);
      node_.processes.back().communicators.push_back(EmptyCommunicator(7, rank));
    }
    node_.taken_realtime_ns = kCreatedNs + kSecondNs;
  }

  collector::CommunicatorSnapshot& Rank(size_t rank) {
    return node_.processes[rank].communicators[0];
  }
  collector::CommunicatorKey Key() {
    return collector::CommunicatorKeyOf(node_.processes[0], Rank(0));
  }
  void Record() {
    node_.taken_realtime_ns += 5 * kSecondNs;
    history_.Record(BookOf(node_), node_.taken_realtime_ns);
  }

  collector::NodeSnapshot node_;
  NodeHistory history_;
};

TEST_F(NodeHistoryTest, HoldsOnlyWhatHappenedBetweenTwoSnapshots) {
  AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 1000000);
  Record();
  EXPECT_EQ(history_.steps(), 0u) << "what was before is not of the last minutes";
  AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 2000000);
  AddOperation(Rank(1), Function::kAllReduce, 1 << 20, 4000000);
  AddOperation(Rank(1), Function::kAllReduce, 1 << 20, 0);
  Record();
  ASSERT_EQ(history_.steps(), 1u);
  EXPECT_EQ(history_.Seconds(0), 5);
  const ActivityDelta* const activity = history_.At(0, Key(), Function::kAllReduce);
  ASSERT_NE(activity, nullptr);
  EXPECT_EQ(activity->operations, 3u);
  EXPECT_EQ(activity->bytes, 3u << 20);
  EXPECT_EQ(activity->timed_operations, 2u);
  EXPECT_DOUBLE_EQ(activity->MeanDurationSeconds(), 0.003);
  EXPECT_NEAR(activity->BusBandwidth(), 2 * (1 << 20) * 1.75 / 0.006, 1);
  EXPECT_EQ(history_.At(0, Key(), Function::kBroadcast), nullptr);
}

TEST_F(NodeHistoryTest, PutsDurationsIntoBinsThatHoldThem) {
  Record();
  const std::vector<uint64_t> durations{500, 1000, 20000, 3000000, 999999999, 2000000000000};
  for (const uint64_t duration : durations) AddOperation(Rank(0), Function::kReduce, 8, duration);
  Record();
  const ActivityDelta* const activity = history_.At(0, Key(), Function::kReduce);
  ASSERT_NE(activity, nullptr);
  ASSERT_EQ(activity->durations.size(), durations.size());
  for (size_t i = 0; i < durations.size(); ++i) {
    const auto [bin, count] = activity->durations[i];
    const double seconds = static_cast<double>(durations[i]) / 1e9;
    EXPECT_EQ(count, 1u);
    EXPECT_TRUE(bin + 1u == kDurationBins || seconds <= std::exp2(bin / 4.0 - 20)) << seconds;
    EXPECT_TRUE(bin == 0 || seconds > std::exp2((bin - 1) / 4.0 - 20)) << seconds;
  }
  EXPECT_EQ(activity->durations.front().bin, 0u);
  EXPECT_EQ(activity->durations.back().bin, kDurationBins - 1);
}

TEST_F(NodeHistoryTest, CountsACommunicatorMadeSinceTheLastStepFromItsBeginning) {
  collector::NodeSnapshot before = node_;
  before.processes[1].communicators.clear();
  history_.Record(BookOf(before), before.taken_realtime_ns);
  Rank(1).created_realtime_ns = before.taken_realtime_ns + kSecondNs;
  AddOperation(Rank(1), Function::kAllGather, 64, 0);
  Record();
  ASSERT_NE(history_.At(0, Key(), Function::kAllGather), nullptr);
  EXPECT_EQ(history_.At(0, Key(), Function::kAllGather)->operations, 1u);
}

// The daemon and the job start together: what is made during the first look is read at the second.
TEST_F(NodeHistoryTest, CountsACommunicatorMadeJustBeforeAStepThatDidNotSeeIt) {
  collector::NodeSnapshot before = node_;
  before.processes[1].communicators.clear();
  history_.Record(BookOf(before), before.taken_realtime_ns);
  Rank(1).created_realtime_ns = before.taken_realtime_ns - kSecondNs / 2;
  AddOperation(Rank(1), Function::kAllGather, 64, 0);
  Rank(1).arrivals = collector::ArrivalCounts{.compared = 125};
  Record();
  ASSERT_NE(history_.At(0, Key(), Function::kAllGather), nullptr);
  EXPECT_EQ(history_.RecentRank(Key(), 1, 5).arrivals.compared, 125u);
}

TEST_F(NodeHistoryTest, LeavesOutWhatAnOldCommunicatorDidBeforeItCouldBeRead) {
  collector::NodeSnapshot before = node_;
  before.processes[1].communicators.clear();
  before.taken_realtime_ns = node_.taken_realtime_ns = kCreatedNs + 6 * kSecondNs;
  history_.Record(BookOf(before), before.taken_realtime_ns);
  AddOperation(Rank(1), Function::kAllGather, 64, 0);
  Record();
  EXPECT_EQ(history_.At(0, Key(), Function::kAllGather), nullptr);
}

TEST_F(NodeHistoryTest, ForgetsTheOldestStep) {
  for (size_t i = 0; i <= kHistorySteps; ++i) Record();
  EXPECT_EQ(history_.steps(), kHistorySteps);
  const int64_t oldest = history_.EndRealtimeNs(0);
  Record();
  EXPECT_EQ(history_.steps(), kHistorySteps);
  EXPECT_EQ(history_.EndRealtimeNs(0), oldest + 5 * kSecondNs);
}

TEST_F(NodeHistoryTest, SumsTheNewestSteps) {
  Record();
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i <= step; ++i) AddOperation(Rank(0), Function::kScatter, 64, 0);
    Record();
  }
  const HistoryWindow recent = history_.Recent(Key(), Function::kScatter, 8);
  EXPECT_EQ(recent.seconds, 10);
  EXPECT_EQ(recent.activity.operations, 7u) << "4 in the last step and 3 in the one before";
  EXPECT_EQ(history_.Recent(Key(), Function::kScatter, 1000).seconds, 20);
}

TEST_F(NodeHistoryTest, CountsWhatFindsNoPlace) {
  node_.processes.resize(1);
  node_.processes[0].communicators.clear();
  for (uint64_t id = 1; id <= kHistorySeries + 3; ++id) {
    node_.processes[0].communicators.push_back(EmptyCommunicator(id, 0));
    node_.processes[0].communicators.back().slot = static_cast<uint32_t>(id);
  }
  Record();
  for (collector::CommunicatorSnapshot& communicator : node_.processes[0].communicators) {
    AddOperation(communicator, Function::kReduce, 8, 0);
  }
  Record();
  EXPECT_EQ(history_.left_out(), 3u);
}

TEST_F(NodeHistoryTest, AUserWithManyCommunicatorsLeavesRoomForAnothers) {
  node_.processes[0].uid = 1001;
  node_.processes[0].communicators.clear();
  for (uint64_t id = 1; id <= kHistorySeries + 3; ++id) {
    node_.processes[0].communicators.push_back(EmptyCommunicator(id, 0));
    node_.processes[0].communicators.back().slot = static_cast<uint32_t>(id);
  }
  Rank(1) = EmptyCommunicator(kHistorySeries + 100, 1);
  Record();
  for (collector::ProcessSnapshot& process : node_.processes) {
    for (collector::CommunicatorSnapshot& communicator : process.communicators) {
      AddOperation(communicator, Function::kReduce, 8, 0);
    }
  }
  Record();
  EXPECT_EQ(history_.left_out(), 4u);
  const collector::CommunicatorKey small =
      collector::CommunicatorKeyOf(node_.processes[1], Rank(1));
  EXPECT_NE(history_.At(0, small, Function::kReduce), nullptr);
}

TEST_F(NodeHistoryTest, SumsArrivalsOfTheNewestSteps) {
  Rank(0).arrivals = collector::ArrivalCounts{.compared = 100, .last = 0, .lateness_ns = 0};
  Rank(1).arrivals = collector::ArrivalCounts{.compared = 100, .last = 0, .lateness_ns = 0};
  Record();
  Rank(0).arrivals = collector::ArrivalCounts{.compared = 200, .last = 5, .lateness_ns = 1000000};
  Rank(1).arrivals =
      collector::ArrivalCounts{.compared = 200, .last = 95, .lateness_ns = kSecondNs};
  Record();
  const RankWindow recent = history_.RecentRank(Key(), 1, 120);
  EXPECT_EQ(recent.arrivals.compared, 100u);
  EXPECT_EQ(recent.arrivals.last, 95u);
  EXPECT_EQ(history_.RecentRank(Key(), 0, 120).arrivals.last, 5u);
}

TEST_F(NodeHistoryTest, SumsNetworkTimeOfTheNewestSteps) {
  const auto sent = [](uint64_t wait_ns, uint64_t operations) {
    return collector::NetworkCounts{.directions = {{{.wait_ns = {wait_ns, 0, 2 * wait_ns, 0},
                                                     .bytes = 100 * operations,
                                                     .operations = operations}}}};
  };
  Rank(1).network = sent(1000, 10);
  Record();
  Rank(1).network = sent(1500, 15);
  Rank(1).network_bus_bytes = {{.all = {2000, 0}, .timed = {100, 0}}};
  Record();  // an operation may end in a step without a call
  Rank(1).network = sent(1700, 16);
  Rank(1).network_bus_bytes = {{.all = {3000, 7}, .timed = {300, 0}}};
  Record();
  const RankWindow all = history_.RecentRank(Key(), 1, 120);
  EXPECT_EQ(all.seconds, 10);
  EXPECT_EQ(all.network, sent(700, 6));
  EXPECT_EQ(all.AllBytes(NetworkDirection::kSend), 600 * 3000 / 300);
  EXPECT_EQ(all.AllBytes(NetworkDirection::kRecv), std::nullopt) << "none was timed";
  EXPECT_EQ(history_.RecentRank(Key(), 1, 5).network, sent(200, 1));
  EXPECT_EQ(history_.RecentRank(Key(), 1, 5).AllBytes(NetworkDirection::kSend), 100 * 1000 / 200);
  EXPECT_EQ(history_.RecentRank(Key(), 0, 120).network, collector::NetworkCounts{});
}

TEST_F(NodeHistoryTest, KeepsWhatEachRankDidByFunctionAndSizeClass) {
  Record();
  AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 2000000);
  AddOperation(Rank(0), Function::kAllReduce, 1 << 25, 9000000);
  AddOperation(Rank(1), Function::kAllReduce, 1 << 20, 1000000);
  Record();
  AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 4000000);
  AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 0);
  Record();
  const RanksWindow window = history_.RecentRanks(10);
  EXPECT_EQ(window.seconds, 10);
  ASSERT_EQ(window.ranks.size(), 2u);
  const RankDelta& first = window.ranks.at({Key(), 0});
  ASSERT_EQ(first.traffic.size(), 2u);
  EXPECT_EQ(first.traffic[0].operations, 3u);
  EXPECT_EQ(first.traffic[0].timed_operations, 2u);
  EXPECT_EQ(first.traffic[0].timed_bytes, 2u << 20);
  EXPECT_DOUBLE_EQ(first.traffic[0].BusySeconds(), 0.006) << "of the timed ones";
  EXPECT_EQ(first.traffic[1].operations, 1u);
  EXPECT_EQ(history_.RecentRanks(5).ranks.count({Key(), 1}), 0u) << "it did nothing lately";
}

TEST_F(NodeHistoryTest, TellsTransferFromWaitingInEachStep) {
  Record();
  for (int i = 0; i < 100; ++i) {
    AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 20000000);
    AddOperation(Rank(1), Function::kAllReduce, 1 << 20, i < 50 ? 10000000 : 0);
    AddOperation(Rank(1), Function::kRecv, 1 << 20, 30000000);
  }
  Record();
  const std::vector<RankWaiting> ranks = history_.Waiting(0, Key());
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_NEAR(ranks[0].in_collectives, 0.4, 1e-9);
  EXPECT_NEAR(ranks[1].in_collectives, 0.1, 1e-9) << "of the timed ones; no receives";
  EXPECT_NEAR(ranks[0].transfer, 0.1, 1e-9);
  EXPECT_NEAR(ranks[0].waiting(), 0.3, 1e-9);
  EXPECT_EQ(ranks[1].waiting(), 0);
}

TEST_F(NodeHistoryTest, ARankWithoutTimedCollectivesIsInNoPictureOfWaiting) {
  Record();
  AddOperation(Rank(0), Function::kAllReduce, 1 << 20, 0);
  AddOperation(Rank(1), Function::kAllReduce, 1 << 20, 1000000);
  Record();
  ASSERT_EQ(history_.Waiting(0, Key()).size(), 1u);
  EXPECT_EQ(history_.Waiting(0, Key())[0].rank, 1u);
}

TEST_F(NodeHistoryTest, CountsRanksThatFindNoPlace) {
  node_.processes.resize(1);
  node_.processes[0].communicators.clear();
  for (uint64_t rank = 0; rank < kHistoryRanks + 3; ++rank) {
    node_.processes[0].communicators.push_back(EmptyCommunicator(7, rank));
    node_.processes[0].communicators.back().slot = static_cast<uint32_t>(rank);
  }
  Record();
  for (collector::CommunicatorSnapshot& communicator : node_.processes[0].communicators) {
    AddOperation(communicator, Function::kReduce, 8, 0);
  }
  Record();
  EXPECT_EQ(history_.left_out(), 3u);
  EXPECT_EQ(history_.RecentRanks(5).ranks.size(), kHistoryRanks);
}

TEST_F(NodeHistoryTest, CountsTrafficThatFindsNoPlace) {
  node_.processes.resize(1);
  node_.processes[0].communicators.clear();
  constexpr size_t kRanks = kHistoryTraffic / kSizeClassCount + 2;
  for (uint64_t rank = 0; rank < kRanks; ++rank) {
    node_.processes[0].communicators.push_back(EmptyCommunicator(7, rank));
    node_.processes[0].communicators.back().slot = static_cast<uint32_t>(rank);
  }
  Record();
  for (collector::CommunicatorSnapshot& communicator : node_.processes[0].communicators) {
    for (const uint64_t bytes : kSizeClassBounds)
      AddOperation(communicator, Function::kReduce, bytes, 0);
  }
  Record();
  EXPECT_EQ(history_.left_out(), 2u);
  EXPECT_EQ(history_.RecentRanks(5).ranks.size(), kHistoryTraffic / kSizeClassCount);
}

// Regression: the user with the fewest communicators came first, with any number of ranks.
TEST_F(NodeHistoryTest, AUserWithManyRanksLeavesRoomForAnothers) {
  node_.processes[0].uid = 1001;
  node_.processes[0].communicators.clear();
  for (uint64_t rank = 0; rank < 2 * kHistoryRanks; ++rank) {
    node_.processes[0].communicators.push_back(EmptyCommunicator(7, rank));
    node_.processes[0].communicators.back().slot = static_cast<uint32_t>(rank);
  }
  node_.processes[1].communicators.clear();
  for (uint64_t id = 100; id < 120; ++id) {
    node_.processes[1].communicators.push_back(EmptyCommunicator(id, 1));
    node_.processes[1].communicators.back().slot = static_cast<uint32_t>(id);
  }
  Record();
  for (collector::ProcessSnapshot& process : node_.processes) {
    for (collector::CommunicatorSnapshot& communicator : process.communicators) {
      for (const uint64_t bytes : kSizeClassBounds)
        AddOperation(communicator, Function::kReduce, bytes, 0);
    }
  }
  Record();
  std::map<uint64_t, size_t> ranks;
  for (const auto& [key, delta] : history_.RecentRanks(5).ranks) ++ranks[key.first.uid];
  EXPECT_EQ(ranks[node_.processes[1].uid], 20u) << "all of them";
  EXPECT_EQ(ranks[1001], kHistoryTraffic / kSizeClassCount - 20) << "the rest";
  EXPECT_EQ(history_.left_out(), 2 * kHistoryRanks - ranks[1001]);
}

// Regression: losses of the processes that a snapshot has first took all places.
TEST_F(NodeHistoryTest, AUserWithManyLossesLeavesRoomForAnothers) {
  for (uint64_t i = 0; i < kHistoryLosses; ++i) {
    node_.processes.insert(node_.processes.begin(), EmptyProcess(10000 + i));
    node_.processes.front().uid = 1001;
  }
  Record();
  for (collector::ProcessSnapshot& process : node_.processes) {
    process.losses[static_cast<size_t>(Loss::kInFlightFull)] += 1;
    process.losses[static_cast<size_t>(Loss::kOverlap)] += 1;
  }
  Record();
  size_t of_small = 0;
  for (const LossDelta& loss : history_.Losses(0)) {
    for (size_t place : {kHistoryLosses, kHistoryLosses + 1})
      of_small += loss.process == node_.processes[place].file ? 1 : 0;
  }
  EXPECT_EQ(of_small, 4u) << "both causes of both processes";
  EXPECT_EQ(history_.Losses(0).size(), kHistoryLosses);
  EXPECT_EQ(history_.left_out(), kHistoryLosses + 4);
}

TEST_F(NodeHistoryTest, KeepsLossesOfEachStepByProcessAndCause) {
  const auto losses = [&](size_t process, Loss cause) -> uint64_t& {
    return node_.processes[process].losses[static_cast<size_t>(cause)];
  };
  losses(0, Loss::kInFlightFull) = 100;
  Record();
  losses(0, Loss::kInFlightFull) = 103;
  losses(1, Loss::kOverlap) = 1;
  Record();
  const std::vector<LossDelta>& step = history_.Losses(0);
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[0].process, node_.processes[0].file);
  EXPECT_EQ(step[0].cause, Loss::kInFlightFull);
  EXPECT_EQ(step[0].events, 3u);
  EXPECT_EQ(step[1].cause, Loss::kOverlap);
  Record();
  EXPECT_TRUE(history_.Losses(1).empty());
}

TEST_F(NodeHistoryTest, LeavesOutWhatAProcessLostBeforeItCouldBeRead) {
  collector::NodeSnapshot before = node_;
  before.processes.resize(1);
  before.taken_realtime_ns = node_.taken_realtime_ns = kCreatedNs + 60 * kSecondNs;
  history_.Record(BookOf(before), before.taken_realtime_ns);
  node_.processes[1].losses[0] = 7;
  Record();
  EXPECT_TRUE(history_.Losses(0).empty());
}

}  // namespace
}  // namespace nccl_exporter::exporter
