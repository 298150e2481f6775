// SPDX-License-Identifier: Apache-2.0
// Communicators that share their labels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

TEST(SeriesMergingTest, ACommunicatorAndItsClosedPredecessorAreOneSubject) {
  collector::CommunicatorSnapshot closed = EmptyCommunicator(1, 0);
  closed.is_closed = true;
  closed.started_sequence = 100;
  AddOperation(closed, Function::kAllReduce, 4 << 20, 1000000);
  collector::CommunicatorSnapshot open = EmptyCommunicator(1, 0);
  open.created_realtime_ns = closed.created_realtime_ns - 1;  // open ones come before newer ones
  open.started_sequence = 2;
  open.nodes = 4;
  AddOperation(open, Function::kAllReduce, 4 << 20, 3000000);
  AddOperation(open, Function::kAllReduce, 4 << 20, 3000000);
  const ScrapedNode scrape(NodeOf({ProcessOf(1, {open, closed})}));
  EXPECT_EQ(scrape.Value(Metric::kApiCalls), 3);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBytes, "size=1048576,"), 12 << 20);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBusySeconds, "size=1048576,"), 0.007);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveDuration), 0.007);
  const std::vector<uint64_t> counts = scrape.Counts(Metric::kCollectiveDuration);
  EXPECT_EQ(counts[static_cast<size_t>(DurationBuckets::IndexOf(1000000))], 1u);
  EXPECT_EQ(counts[static_cast<size_t>(DurationBuckets::IndexOf(3000000))], 2u);
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence), 2);
  EXPECT_EQ(scrape.Value(Metric::kCommunicatorInfo, "nnodes=4,"), 1);
  EXPECT_EQ(scrape.Values(Metric::kRankInfo).size(), 1u);
}

TEST(SeriesMergingTest, ProcessesWithTheSameLabelsAreSummed) {
  collector::ProcessSnapshot first = ProcessOf(1, {EmptyCommunicator(1, 0)});
  collector::ProcessSnapshot second = ProcessOf(1, {EmptyCommunicator(1, 0)});
  second.file.inode = 2;
  first.losses[0] = 3;
  second.losses[0] = 4;
  second.is_alive = false;
  first.communicators[0].started_sequence = 11;
  const ScrapedNode scrape(NodeOf({first, second}));
  EXPECT_EQ(scrape.Value(Metric::kEventsDropped, "reason=no_free_slot,"), 7);
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence), 11) << "the process that lives";
}

collector::NetworkCounts Sent(uint64_t operations) {
  return {.directions = {{{.wait_ns = {operations * 1000000, operations * 2000000, 3000000, 0},
                           .bytes = operations * 100,
                           .operations = operations}}}};
}

TEST(SeriesMergingTest, NetworkTimeOfACommunicatorAndItsPredecessorIsSummed) {
  collector::CommunicatorSnapshot closed = EmptyCommunicator(1, 0);
  closed.is_closed = true;
  closed.network = Sent(2);
  collector::CommunicatorSnapshot open = EmptyCommunicator(1, 0);
  open.network = Sent(5);
  const ScrapedNode scrape(NodeOf({ProcessOf(1, {open, closed})}));
  EXPECT_EQ(scrape.Value(Metric::kNetworkTimedOperations, "direction=send,"), 7);
  EXPECT_EQ(scrape.Value(Metric::kNetworkTimedBytes, "direction=send,"), 700);
  EXPECT_EQ(scrape.Value(Metric::kNetworkWaitSeconds, "direction=send,state=gpu,"), 0.007);
  EXPECT_EQ(scrape.Value(Metric::kNetworkWaitSeconds, "direction=send,state=peer,"), 0.014);
  EXPECT_EQ(scrape.Value(Metric::kNetworkWaitSeconds, "direction=send,state=network,"), 0.006);
  EXPECT_THAT(scrape.Values(Metric::kNetworkWaitSeconds), testing::SizeIs(3))
      << "sends are not flushed, and a direction without operations has no series";
}

TEST(SeriesMergingTest, AReceiveThatIsNotPostedWaitsForItsOwnGpu) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.network = {{.directions = {{{}, {.wait_ns = {1, 2, 4, 8}, .operations = 1}}}}};
  const ScrapedNode scrape(NodeOf({ProcessOf(1, {communicator})}));
  EXPECT_EQ(scrape.Value(Metric::kNetworkWaitSeconds, "direction=recv,state=gpu,"), 3e-9);
  EXPECT_EQ(scrape.Value(Metric::kNetworkWaitSeconds, "direction=recv,state=network,"), 4e-9);
  EXPECT_EQ(scrape.Value(Metric::kNetworkWaitSeconds, "direction=recv,state=flush,"), 8e-9);
  EXPECT_THAT(scrape.Values(Metric::kNetworkWaitSeconds), testing::SizeIs(3));
}

TEST(SeriesMergingTest, ACommunicatorHasAtMostTenSeriesOfTheNetwork) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  const size_t without = ScrapedNode(NodeOf({ProcessOf(1, {communicator})})).samples();
  communicator.network = collector::NetworkCounts{};
  EXPECT_EQ(ScrapedNode(NodeOf({ProcessOf(1, {communicator})})).samples(), without);
  for (collector::NetworkDirectionCounts& counts : communicator.network->directions)
    counts = {.wait_ns = {1, 1, 1, 1}, .bytes = 1, .operations = 1};
  EXPECT_EQ(ScrapedNode(NodeOf({ProcessOf(1, {communicator})})).samples(), without + 10);
}

constexpr collector::NetworkBusBytes kSomeBusBytes{.all = {30, 20}, .timed = {3, 2}};

TEST(SeriesMergingTest, BusBytesOfTheNodeAreSummedWhereLabelsAreShared) {
  collector::CommunicatorSnapshot closed = EmptyCommunicator(1, 0), open = closed;
  closed.is_closed = true;
  const auto with = [](const collector::CommunicatorSnapshot& communicator,
                       const collector::NetworkBusBytes& bus_bytes) {
    Counted member{.communicator = communicator, .counts = RankCounts()};
    member.counts->node.emplace().network = bus_bytes;
    return member;
  };
  const Counted of_open = with(open, {.all = {5, 0}, .timed = {1, 0}});
  const ScrapedNode scrape(BookOf({{1, {of_open, with(closed, kSomeBusBytes)}}}));
  EXPECT_EQ(scrape.Value(Metric::kNodeNetworkBusBytes, "direction=send,"), 35);
  EXPECT_EQ(scrape.Value(Metric::kNodeNetworkBusBytes, "direction=recv,"), 20);
  EXPECT_EQ(scrape.Value(Metric::kNodeNetworkTimedBusBytes, "direction=send,"), 4);
  EXPECT_EQ(scrape.Value(Metric::kNodeNetworkTimedBusBytes, "direction=recv,"), 2);
  const ScrapedNode alone(BookOfOne(of_open));
  EXPECT_THAT(alone.Values(Metric::kNodeNetworkBusBytes), testing::SizeIs(1))
      << "a direction without bytes has none";
}

collector::NetworkCounts SomeNetworkCounts() {
  collector::NetworkCounts counts;
  for (collector::NetworkDirectionCounts& direction : counts.directions)
    direction = {.wait_ns = {1, 2, 3, 4}, .bytes = 5, .operations = 1};
  return counts;
}

// All families by name, so that a further one is among them.
TEST(SeriesMergingTest, NoRankHasMoreThanTenSeriesOfTheNetworkOnAFullPage) {
  std::vector<CountedProcess> processes;
  for (uint64_t rank = 0; rank < 2; ++rank) {
    std::vector<Counted> communicators;
    for (uint64_t id = 1; id <= 2; ++id) {
      Counted member{.communicator = EmptyCommunicator(id, rank), .counts = RankCounts()};
      collector::CommunicatorSnapshot& communicator = member.communicator;
      for (size_t i = 0; i < kFunctionCount; ++i)
        AddOperation(communicator, static_cast<Function>(i), 1 << 24, 1000);
      communicator.network = SomeNetworkCounts();
      if (rank == 0) member.counts->node.emplace().network = kSomeBusBytes;
      communicators.push_back(std::move(member));
    }
    processes.push_back({.pid = 1 + rank, .communicators = std::move(communicators)});
  }
  const ScrapedNode scrape(BookOf(processes));
  std::map<std::string, size_t> of_ranks, of_nodes;
  for (const MetricRow& row : kMetrics) {
    const bool is_of_rank = row.name.starts_with("nccl_network_");
    if (!is_of_rank && !row.name.starts_with("nccl_node_network_")) continue;
    for (const auto& [labels, value] : scrape.Values(row.id)) {
      EXPECT_NE(value, 0);
      ++(is_of_rank ? of_ranks : of_nodes)[labels.substr(0, labels.find(",direction="))];
    }
  }
  EXPECT_THAT(of_ranks, testing::SizeIs(4));
  EXPECT_THAT(of_ranks, testing::Each(testing::Pair(testing::_, 10)));
  EXPECT_THAT(of_nodes, testing::SizeIs(2)) << "on one rank of each communicator";
  EXPECT_THAT(of_nodes, testing::Each(testing::Pair(testing::_, 4)));
}

TEST(SeriesMergingTest, NeverSumsWhatSegmentsOfTwoUsersClaim) {
  collector::ProcessSnapshot victim = ProcessOf(1, {EmptyCommunicator(1, 0)}), stranger = victim;
  victim.losses[0] = 3;
  AddOperation(victim.communicators[0], Function::kAllReduce, 100, 1000);
  stranger.file.inode = 99;
  stranger.uid = 1001;
  stranger.is_alive = false;
  AddOperation(stranger.communicators[0], Function::kAllReduce, 100, 5000);
  const ScrapedNode scrape(NodeOf({victim, stranger}));
  EXPECT_THAT(scrape.Values(Metric::kProcessAlive), testing::SizeIs(2));
  EXPECT_THAT(scrape.Values(Metric::kStartedSequence), testing::SizeIs(2));
  EXPECT_EQ(scrape.Value(Metric::kCollectiveDuration, "uid=1001,"), 5e-6);
  EXPECT_EQ(scrape.Value(Metric::kEventsDropped, "uid=1001,reason=no_free_slot,"), 0);
}

TEST(SeriesMergingTest, OverflowSlotsOfAJobAreOneOtherCommunicator) {
  SeriesMemory memory;
  const auto scrape_of = [&](uint64_t operations) {
    collector::CommunicatorSnapshot overflow = Overflow();
    for (uint64_t i = 0; i < operations; ++i) AddOperation(overflow, Function::kBroadcast, 100, 0);
    collector::ProcessSnapshot rank0 = ProcessOf(1, {overflow});
    collector::ProcessSnapshot rank1 = ProcessOf(2, {overflow});
    collector::ProcessSnapshot stranger = ProcessOf(3, {overflow});
    rank0.identity = rank1.identity = {{"SLURM_JOB_ID", "5"}};
    return ScrapedNode(NodeOf({rank0, rank1, stranger}), {}, memory);
  };
  EXPECT_THAT(scrape_of(7).Values(Metric::kApiCalls),
              testing::AllOf(testing::SizeIs(2), testing::Each(testing::Pair(testing::_, 0))))
      << "what was before the first scrape does not count";
  const ScrapedNode scrape = scrape_of(8);
  EXPECT_THAT(
      scrape.Values(Metric::kApiCalls),
      testing::UnorderedElementsAre(
          testing::Pair("comm=other,comm_name=,rank=,gpu=,uid=1000,nccl_job=5,function=Broadcast,",
                        2),
          testing::Pair("comm=other,comm_name=,rank=,gpu=,uid=1000,function=Broadcast,", 1)));
  EXPECT_TRUE(scrape.Values(Metric::kStartedSequence).empty());
  EXPECT_TRUE(scrape.Values(Metric::kRankInfo).empty());
}

TEST(SeriesMergingTest, BusBytesOfTheNodeAreThereForCommunicatorsWithoutSeries) {
  Counted overflow{.communicator = Overflow(), .counts = RankCounts()};
  AddOperation(overflow.communicator, Function::kSend, 64, 0);
  overflow.counts->node.emplace().network.emplace();
  SeriesMemory memory;
  ScrapedNode(BookOfOne(overflow), {}, memory);
  overflow.counts->node->network = kSomeBusBytes;
  const ScrapedNode scrape(BookOfOne(overflow), {}, memory);
  EXPECT_EQ(scrape.Value(Metric::kNodeNetworkBusBytes,
                         "comm=other,comm_name=,rank=,gpu=,uid=1000,direction=send,"),
            30);
  EXPECT_EQ(scrape.Value(Metric::kNodeNetworkTimedBusBytes, "direction=recv,"), 2);
}

TEST(SeriesMergingTest, ACommunicatorWithAllFunctionsFitsTheRoomKeptForOthers) {
  collector::CommunicatorSnapshot overflow = Overflow();
  overflow.ranks = 8;  // as in a fold, where bus bytes are known
  const collector::CommunicatorSnapshot before = overflow;
  for (size_t i = 0; i < kFunctionCount; ++i)
    AddOperation(overflow, static_cast<Function>(i), 64, 0);
  overflow.network.emplace();
  for (collector::NetworkDirectionCounts& counts : overflow.network->directions)
    counts = {.wait_ns = {1, 1, 1, 1}, .bytes = 1, .operations = 1};
  RankCounts counts;
  counts.node.emplace().network = kSomeBusBytes;
  const auto samples = [&](const Book& node) {
    SeriesMemory memory;
    ScrapedNode(NodeOfOne(before), {}, memory);
    return ScrapedNode(node, {}, memory).samples();
  };
  EXPECT_LE(samples(BookOfOne({overflow, counts})) - samples(BookOf(NodeOf({ProcessOf(1, {})}))),
            kSeriesForOthers);
}

}  // namespace
}  // namespace nccl_exporter::exporter
