// SPDX-License-Identifier: Apache-2.0
// Series that dropped labels and disabled families merge or remove.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "exporter/testing/scraped_node.h"
#include "proto/droppable_labels.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

MetricFilter Without(const std::vector<std::string>& labels) {
  MetricFilter filter;
  for (const std::string& label : labels) EXPECT_EQ(filter.DropLabel(label), "");
  return filter;
}

// Rank `rank` of the communicator, with 10 * (rank + 1) operations.
collector::CommunicatorSnapshot MemberOf(uint64_t id, uint64_t rank) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, rank);
  communicator.name = "dp";
  communicator.completion_is_known = true;
  communicator.started_sequence = 10 * (rank + 1);
  communicator.completed_sequence = communicator.started_sequence - 1;
  communicator.last_progress_realtime_ns = static_cast<int64_t>(rank + 1) * 1000000000;
  communicator.in_flight = {{.function = rank == 0 ? Function::kReduce : Function::kAllReduce,
                             .start_realtime_ns = static_cast<int64_t>(rank + 5) * 1000000000}};
  communicator.arrivals = {{.compared = 100, .last = 3, .lateness_ns = 2000000000}};
  AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  return communicator;
}

collector::NodeSnapshot NodeOfTwoRanks() {
  return NodeOf({ProcessOf(1, {MemberOf(7, 0)}), ProcessOf(2, {MemberOf(7, 1)})});
}

TEST(DroppedLabelsTest, EachLabelLeavesNoDuplicatesAndNoTraceButOther) {
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t pid = 1; pid <= 3; ++pid) {
    collector::CommunicatorSnapshot overflow = Overflow();
    AddOperation(overflow, Function::kBroadcast, 100, 1000);
    processes.push_back(
        ProcessOf(pid, {BusyCommunicator(pid % 2), MemberOf(7, pid), MemberOf(8, pid), overflow}));
    processes.back().identity = {{"SLURM_JOB_ID", std::to_string(pid)},
                                 {"POD_NAMESPACE", "n"},
                                 {"POD_NAME", "p" + std::to_string(pid)},
                                 {"CONTAINER_NAME", "c"}};
    processes.back().numbers.global_rank = static_cast<uint32_t>(pid % 2);
    for (collector::CommunicatorSnapshot& communicator : processes.back().communicators)
      communicator.numbers = processes.back().numbers;
  }
  std::vector<std::string> all;
  for (const DroppableLabel& label : kDroppableLabels) all.emplace_back(label.name);
  std::vector<std::vector<std::string>> choices{all, {"rank", "gpu"}, {"comm", "comm_name"}};
  for (const std::string& label : all) choices.push_back({label});
  for (const std::vector<std::string>& choice : choices) {
    const MetricFilter filter = Without(choice);
    const ScrapedNode scrape(NodeOf(processes), kSeriesLimit, filter);
    for (size_t metric = 0; metric < kMetricCount; ++metric) {
      for (const auto& [labels, value] : scrape.Values(static_cast<Metric>(metric))) {
        for (const std::string& label : choice) {
          const size_t at = (',' + labels).find(',' + label + '=');
          if (at == std::string::npos) continue;
          EXPECT_EQ(labels.substr(at, 11), "comm=other,") << labels;
        }
      }
    }
  }
}

TEST(DroppedLabelsTest, NoCountIsLostWhateverIsDropped) {
  const collector::NodeSnapshot node =
      NodeOf({ProcessOf(1, {MemberOf(7, 0), MemberOf(8, 0), BusyCommunicator(9)}),
              ProcessOf(2, {MemberOf(7, 1), BusyCommunicator(9)})});
  const auto sum = [](const ScrapedNode& scrape, Metric metric) {
    double total = 0;
    for (const auto& [labels, value] : scrape.Values(metric)) total += value;
    return total;
  };
  const ScrapedNode whole(node);
  for (const DroppableLabel& label : kDroppableLabels) {
    const ScrapedNode less(node, kSeriesLimit, Without({std::string(label.name)}));
    for (size_t i = 0; i < kMetricCount; ++i) {
      const auto metric = static_cast<Metric>(i);
      if (RowOf(metric).type != MetricType::kCounter &&
          RowOf(metric).type != MetricType::kHistogram)
        continue;
      EXPECT_NEAR(sum(less, metric), sum(whole, metric), 1e-9 * sum(whole, metric))
          << RowOf(metric).name << label.name;
    }
  }
}

TEST(DroppedLabelsTest, RanksThatAreMergedShowCountsAddedAndTheStateOfTheOneBehind) {
  const ScrapedNode scrape(AssumedBookOf(NodeOfTwoRanks()), kSeriesLimit, Without({"rank", "gpu"}));
  const std::string labels = "comm=0000000000000007,comm_name=dp,uid=1000,";
  EXPECT_THAT(scrape.Values(Metric::kApiCalls),
              ElementsAre(Pair(labels + "function=AllReduce,", 2)));
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBytes, "size=1048576,"), 8 << 20);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBusBytes, "size=1048576,"), (8 << 20) * 1.75);
  EXPECT_EQ(
      scrape.Counts(
          Metric::kCollectiveDuration)[static_cast<size_t>(DurationBuckets::IndexOf(1000000))],
      2u);
  EXPECT_EQ(scrape.Value(Metric::kComparedOperations), 100) << "of the communicator, once";
  EXPECT_EQ(scrape.Value(Metric::kLastArrivals), 6);
  EXPECT_EQ(scrape.Value(Metric::kArrivalLateness), 4);
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence), 10) << "the lowest";
  EXPECT_EQ(scrape.Value(Metric::kCompletedSequence), 9) << "the lowest";
  EXPECT_EQ(scrape.Value(Metric::kInFlight), 2) << "the sum";
  EXPECT_EQ(scrape.Value(Metric::kStalledStartedSequence), std::nullopt) << "none is quiet";
  EXPECT_EQ(scrape.Value(Metric::kLastProgress), 2) << "the latest";
  EXPECT_THAT(scrape.Values(Metric::kOldestInFlightStart),
              ElementsAre(Pair(labels + "function=Reduce,", 5)));
  EXPECT_EQ(scrape.Value(Metric::kCommunicatorRanks), 8);
  EXPECT_EQ(scrape.Values(Metric::kCommunicatorInfo).size(), 1u);
  EXPECT_EQ(scrape.Values(Metric::kRankInfo).size(), 2u) << "each GPU";
}

// The others go on, so a sum over all would hide what is stalled.
TEST(DroppedLabelsTest, StalledRanksAreThoseOfTheQuietMembers) {
  Book node = AssumedBookOf(NodeOfTwoRanks());
  node.rows[1].ranks[0]->is_quiet = true;
  node.rows[1].ranks[0]->progress = 39;
  const ScrapedNode scrape(node, kSeriesLimit, Without({"rank", "gpu"}));
  EXPECT_EQ(scrape.Value(Metric::kStalledStartedSequence), 20);
  EXPECT_EQ(scrape.Value(Metric::kStalledCompletedSequence), 19);
  EXPECT_EQ(scrape.Value(Metric::kStalledInFlight), 1);
  EXPECT_EQ(scrape.Value(Metric::kStalledProgress), 39);
  EXPECT_EQ(scrape.Values(Metric::kStalledCommunicatorRanks).size(), 1u) << "of that one";
  EXPECT_EQ(scrape.Value(Metric::kStalledOldestInFlightStart, "function=AllReduce,"), 6);
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence), 10);
}

TEST(DroppedLabelsTest, GaugesOfTheDeadDoNotCount) {
  collector::NodeSnapshot node = NodeOfTwoRanks();
  node.processes[0].is_alive = false;
  const ScrapedNode scrape(AssumedBookOf(node), kSeriesLimit, Without({"rank", "gpu"}));
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence), 20);
  EXPECT_EQ(scrape.Value(Metric::kApiCalls), 2) << "counts do";
  EXPECT_EQ(scrape.Value(Metric::kCommunicatorRanks), 8) << "of the communicator";
}

TEST(DroppedLabelsTest, CommunicatorsCanBeTakenByName) {
  collector::CommunicatorSnapshot overflow = Overflow();
  AddOperation(overflow, Function::kBroadcast, 100, 0);
  collector::CommunicatorSnapshot trap = MemberOf(9, 0);
  trap.name = "other";
  const collector::NodeSnapshot node =
      NodeOf({ProcessOf(1, {MemberOf(7, 0), MemberOf(8, 0), trap, overflow})});
  EXPECT_THAT(ScrapedNode(node, kSeriesLimit, Without({"comm"})).Values(Metric::kApiCalls),
              UnorderedElementsAre(
                  Pair("comm_name=dp,rank=0,gpu=0,uid=1000,function=AllReduce,", 2),
                  Pair("comm_name=other,rank=0,gpu=0,uid=1000,function=AllReduce,", 1),
                  Pair("comm=other,comm_name=,rank=,gpu=,uid=1000,function=Broadcast,", 0)));
}

TEST(DroppedLabelsTest, SizesAreAddedUp) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 512, 2000);
  AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  AddOperation(communicator, Function::kReduce, 4 << 20, 1000000);
  AddOperation(communicator, Function::kSend, 64, 1000);
  const std::string labels = "comm=0000000000000001,comm_name=,rank=0,gpu=0,uid=1000,";
  const ScrapedNode sizeless(NodeOfOne(communicator), kSeriesLimit, Without({"size"}));
  const auto of_each = [&](double all_reduce, double reduce) {
    return UnorderedElementsAre(Pair(labels + "collective=AllReduce,", all_reduce),
                                Pair(labels + "collective=Reduce,", reduce));
  };
  EXPECT_THAT(sizeless.Values(Metric::kCollectiveBytes), of_each((4 << 20) + 512, 4 << 20));
  EXPECT_THAT(sizeless.Values(Metric::kCollectiveOperations), of_each(2, 1));
  EXPECT_THAT(sizeless.Values(Metric::kCollectiveBusBytes),
              of_each(((4 << 20) + 512) * 1.75, 4 << 20));
  EXPECT_THAT(sizeless.Values(Metric::kCollectiveBusySeconds), of_each(0.001002, 0.001));
  EXPECT_EQ(sizeless.Value(Metric::kSendOperations), 1);
}

TEST(DroppedLabelsTest, FamiliesThatAreSwitchedOffTakeNoRoomUnderTheCap) {
  MetricFilter filter;
  filter.Disable("histograms");
  filter.Disable("nccl_process_*");
  const collector::NodeSnapshot node = NodeOf({ProcessOf(1, {BusyCommunicator(1)})});
  const ScrapedNode less(node, kSeriesLimit, filter);
  EXPECT_TRUE(less.Values(Metric::kCollectiveDuration).empty());
  EXPECT_TRUE(less.Values(Metric::kEventsDropped).empty());
  EXPECT_TRUE(less.Values(Metric::kProcessAlive).empty());
  EXPECT_FALSE(less.Values(Metric::kCollectiveBusySeconds).empty());
  constexpr size_t kPassing = 8;  // when it stalls, and with an operation in flight
  const ScrapedNode capped(node, less.samples() + kPassing + kSeriesForOthers, filter);
  EXPECT_TRUE(capped.drops().by_user.empty());
  EXPECT_EQ(capped.samples(), less.samples());
}

TEST(DroppedLabelsTest, ASumKeepsWhatItsMembersLeftBehind) {
  const MetricFilter filter = Without({"comm"});
  SeriesMemory memory(filter);
  collector::CommunicatorSnapshot old = MemberOf(7, 0);
  collector::CommunicatorSnapshot young = MemberOf(8, 0);
  old.created_realtime_ns = 5;
  young.ranks = 4;
  const auto scrape = [&](std::vector<collector::CommunicatorSnapshot> communicators) {
    return ScrapedNode(AssumedBookOf(NodeOf({ProcessOf(1, std::move(communicators))})), filter,
                       memory);
  };
  const auto expect = [](const ScrapedNode& node, double calls) {
    EXPECT_EQ(node.Value(Metric::kApiCalls), calls);
    EXPECT_EQ(node.Value(Metric::kCollectiveBusySeconds, "size=1048576,"), calls / 1000);
    EXPECT_EQ(
        node.Counts(
            Metric::kCollectiveDuration)[static_cast<size_t>(DurationBuckets::IndexOf(1000000))],
        calls);
    EXPECT_EQ(node.Value(Metric::kComparedOperations), calls * 100);
  };
  expect(scrape({old, young}), 2);
  const ScrapedNode without_old = scrape({young});
  expect(without_old, 2);
  EXPECT_EQ(without_old.Value(Metric::kCollectiveBusBytes, "size=1048576,"),
            (4 << 20) * (1.75 + 1.5));
  EXPECT_EQ(without_old.Value(Metric::kStartedSequence), 10);
  EXPECT_EQ(without_old.Values(Metric::kRankInfo).size(), 1u);
  AddOperation(young, Function::kAllReduce, 4 << 20, 1000000);
  young.arrivals->compared += 100;
  expect(scrape({young}), 3);
  collector::CommunicatorSnapshot third = MemberOf(9, 0);
  expect(scrape({young, third}), 4);
  expect(scrape({third}), 4);
  EXPECT_EQ(scrape({}).Value(Metric::kApiCalls), std::nullopt);
  expect(scrape({third}), 1);
}

// The lowest rank leaves, and the next one counts from 0 on.
TEST(DroppedLabelsTest, CountsOfTheNodeGoOnWhenAnotherRankIsTheLowest) {
  const MetricFilter filter = Without({"rank", "gpu"});
  SeriesMemory memory(filter);
  collector::NodeSnapshot node = NodeOfTwoRanks();
  EXPECT_EQ(ScrapedNode(AssumedBookOf(node), filter, memory).Value(Metric::kComparedOperations),
            100);
  node.processes.erase(node.processes.begin());
  Book book = AssumedBookOf(node);
  book.rows[0].ranks[0]->node = NodeCounts{.is_lowest = true, .compared = 5, .large = {}};
  const ScrapedNode next(book, filter, memory);
  EXPECT_EQ(next.Value(Metric::kComparedOperations), 105);
  EXPECT_EQ(next.Value(Metric::kCommunicatorRanks), 8);
}

TEST(DroppedLabelsTest, LossesOfProcessesThatLeftStayInTheSum) {
  const MetricFilter filter = Without({"pid"});
  SeriesMemory memory(filter);
  collector::ProcessSnapshot first = ProcessOf(1, {});
  collector::ProcessSnapshot second = ProcessOf(2, {});
  first.losses[0] = 3;
  second.losses[0] = 4;
  first.chained_callbacks = 64;
  second.chained_callbacks = 128;
  first.chained_ns = second.chained_ns = 500'000'000;
  const auto dropped = [&](std::vector<collector::ProcessSnapshot> processes) {
    const ScrapedNode scrape(NodeOf(std::move(processes)), filter, memory);
    const auto value = scrape.Value(Metric::kEventsDropped, "reason=no_free_slot,");
    EXPECT_EQ(scrape.Value(Metric::kOperationsUnfollowed), value);
    if (value > 5) {
      EXPECT_EQ(scrape.Value(Metric::kProcessChainedCallbacks), 192);
      EXPECT_EQ(scrape.Value(Metric::kProcessChainedSeconds), 1.0);
    }
    return value;
  };
  EXPECT_EQ(dropped({first, second}), 7);
  EXPECT_EQ(dropped({second}), 7);
  second.losses[0] = 5;
  EXPECT_EQ(dropped({second}), 8);
  EXPECT_EQ(dropped({}), std::nullopt);
  EXPECT_EQ(dropped({second}), 5);
}

}  // namespace
}  // namespace nccl_exporter::exporter
