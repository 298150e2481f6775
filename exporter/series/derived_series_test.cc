// SPDX-License-Identifier: Apache-2.0
// Series of derived counters: when they appear, and what is summed.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kLargeBytes = 32 << 20;

std::map<collector::OperationKind, collector::LargeCounts> LargeOf(Function function) {
  return {{{.function = function, .size_class = 4},
           {.timed_operations = 3, .bus_bytes = 5 * kLargeBytes, .busy_ns = 2'000'000'000}}};
}

// With collectives and sends, all timed, on two nodes; it counts for its node.
collector::CommunicatorSnapshot Derived(uint64_t id, uint64_t rank, uint64_t kernel_ns) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, rank);
  AddOperation(communicator, Function::kAllReduce, kLargeBytes, kernel_ns);
  AddOperation(communicator, Function::kSend, 8, kernel_ns);
  collector::DerivedCounts& derived = communicator.derived.emplace();
  derived.kernel_ns = {kernel_ns, kernel_ns};
  derived.since_realtime_ns = communicator.created_realtime_ns;
  derived.steps = {
      .steps = kernel_ns,
      .waits_ns = {{{.function = Function::kAllReduce, .size_class = 0}, kernel_ns},
                   {{.function = Function::kAllReduce, .size_class = 4}, 2 * kernel_ns}},
      .since_realtime_ns = 0};
  derived.node = {
      .is_lowest = true, .progress = 40, .compared = 100, .large = LargeOf(Function::kAllReduce)};
  return communicator;
}

collector::ProcessSnapshot DerivedProcess(uint64_t pid, uint64_t kernel_ns) {
  collector::ProcessSnapshot process = ProcessOf(pid, {Derived(pid, 0, kernel_ns)});
  process.derived = {
      .kernel_ns = kernel_ns, .point_to_point_operations = 1, .since_realtime_ns = 0};
  return process;
}

MetricFilter Without(const std::string& label) {
  MetricFilter filter;
  EXPECT_EQ(filter.DropLabel(label), "");
  return filter;
}

TEST(DerivedSeries, HaveTheLabelsOfTheirCommunicator) {
  const ScrapedNode scrape(NodeOfOne(Derived(1, 3, 1'000'000'000)));
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds, "rank=3,gpu=3,uid=1000,"), 2);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPointKernelSeconds, "rank=3,gpu=3,uid=1000,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPoint, "rank=3,gpu=3,uid=1000,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations, "rank=3,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankSteps, "rank=3,"), 1'000'000'000);
  EXPECT_EQ(scrape.Value(Metric::kRankStepWait, "collective=AllReduce,size=0,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankStepWait, "collective=AllReduce,size=16777216,"), 2);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds, "collective=AllReduce,size=16777216,"), 2);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeTimedOperations, "rank=3,"), 3);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusBytes, "rank=3,"), 5 * kLargeBytes);
  EXPECT_EQ(scrape.Value(Metric::kComparedOperations, "rank=3,"), 100);
  EXPECT_EQ(scrape.Value(Metric::kNodeProgress, "rank=3,"), 40);
  EXPECT_EQ(scrape.Value(Metric::kCommunicatorRanks, "rank=3,"), 8);
}

TEST(DerivedSeries, OfTheNodeAreOnTheRowOfItsLowestRank) {
  collector::CommunicatorSnapshot other = Derived(1, 4, 1);
  other.derived->node.reset();
  collector::CommunicatorSnapshot former = Derived(1, 2, 1);
  former.derived->node->is_lowest = false;
  const ScrapedNode scrape(
      NodeOf({ProcessOf(1, {former}), ProcessOf(2, {Derived(1, 3, 1)}), ProcessOf(3, {other})}));
  EXPECT_EQ(scrape.Values(Metric::kCommunicatorRanks).size(), 1u);
  EXPECT_EQ(scrape.Value(Metric::kCommunicatorRanks, "rank=3,"), 8);
  EXPECT_EQ(scrape.Values(Metric::kComparedOperations).size(), 2u);
  EXPECT_EQ(scrape.Value(Metric::kComparedOperations, "rank=2,"), 100) << "what it has counted";
  EXPECT_EQ(scrape.Value(Metric::kComparedOperations, "rank=4,"), std::nullopt);
}

TEST(DerivedSeries, OfSendsAndReceivesAppearWithTheFirstThatIsTimed) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 8, 1);
  communicator.derived.emplace();
  const auto kernel_seconds = [&] {
    return ScrapedNode(NodeOfOne(communicator)).Value(Metric::kRankPointToPointKernelSeconds);
  };
  EXPECT_EQ(ScrapedNode(NodeOfOne(communicator)).Value(Metric::kRankPointToPoint), std::nullopt);
  EXPECT_EQ(kernel_seconds(), std::nullopt);
  AddOperation(communicator, Function::kRecv, 8, 0);
  EXPECT_EQ(ScrapedNode(NodeOfOne(communicator)).Value(Metric::kRankPointToPoint), 1);
  EXPECT_EQ(kernel_seconds(), std::nullopt);
  AddOperation(communicator, Function::kRecv, 8, 1);
  EXPECT_EQ(kernel_seconds(), 0);
}

// 0 would look like a rank that never waits.
TEST(DerivedSeries, EndWithTheTiming) {
  collector::CommunicatorSnapshot communicator = Derived(1, 0, 1);
  communicator.timing_source = TimingSource::kNone;
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_TRUE(scrape.Values(Metric::kRankKernelSeconds).empty());
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations), 1);
}

TEST(DerivedSeries, OfSnapshotsWithoutDerivedCountsAreAbsent) {
  collector::CommunicatorSnapshot communicator = Derived(1, 0, 1);
  communicator.derived.reset();
  const ScrapedNode scrape(NodeOfOne(communicator));
  for (const Metric metric :
       {Metric::kRankKernelSeconds, Metric::kRankTimedOperations, Metric::kRankSteps,
        Metric::kNodeLargeBusBytes, Metric::kComparedOperations, Metric::kCommunicatorRanks}) {
    EXPECT_TRUE(scrape.Values(metric).empty());
  }
}

TEST(DerivedSeries, OfRanksWithoutTheLabelAreSums) {
  const MetricFilter filter = [] {
    MetricFilter without = Without("rank");
    EXPECT_EQ(without.DropLabel("gpu"), "");
    return without;
  }();
  const ScrapedNode scrape(NodeOf({ProcessOf(1, {Derived(1, 0, 1'000'000'000)}),
                                   ProcessOf(2, {Derived(1, 1, 2'000'000'000)})}),
                           kSeriesLimit, filter);
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds), 6);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPointKernelSeconds), 3);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations), 2);
  EXPECT_EQ(scrape.Value(Metric::kRankSteps), 3'000'000'000);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds), 4);
}

TEST(DerivedSeries, OfTheLargestCollectivesAreSumsOverAllMembers) {
  collector::CommunicatorSnapshot other = Derived(1, 0, 1), changed = other;
  changed.derived->node->large = LargeOf(Function::kAllGather);
  const ScrapedNode scrape(
      NodeOf({ProcessOf(1, {other}), ProcessOf(2, {other}), ProcessOf(3, {changed})}));
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds, "AllReduce"), 4);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds, "AllGather"), 2);
}

TEST(DerivedSeries, OfTheLargestCollectiveNeedTheLabelsThatNameIt) {
  for (const char* const label : {"size", "collective"}) {
    const ScrapedNode scrape(NodeOfOne(Derived(1, 0, 1)), kSeriesLimit, Without(label));
    EXPECT_TRUE(scrape.Values(Metric::kNodeLargeBusBytes).empty()) << label;
    EXPECT_EQ(scrape.Value(Metric::kRankSteps), 1) << label;
  }
}

TEST(DerivedSeries, OfMembersThatAreGoneStayInTheSum) {
  SeriesMemory memory(Without("comm"));
  const auto scrape = [&](collector::NodeSnapshot node) {
    return ScrapedNode(std::move(node), Without("comm"), memory);
  };
  const auto first = [] { return Derived(1, 0, 1'000'000'000); };
  const auto second = [] {
    collector::CommunicatorSnapshot communicator = Derived(2, 0, 2'000'000'000);
    communicator.slot = 1;
    return communicator;
  };
  EXPECT_EQ(scrape(NodeOfOne(first())).Value(Metric::kRankKernelSeconds), 2);
  const auto both = NodeOf({ProcessOf(1, {first(), second()}), ProcessOf(2, {second()})});
  EXPECT_EQ(scrape(both).Value(Metric::kRankKernelSeconds), 10);
  const ScrapedNode left = scrape(NodeOf({ProcessOf(1, {second()}), ProcessOf(2, {second()})}));
  EXPECT_EQ(left.Value(Metric::kRankKernelSeconds), 10);
  EXPECT_EQ(left.Value(Metric::kRankSteps), 5'000'000'000);
}

TEST(DerivedSeries, OfCommunicatorsWithoutSeriesAreKernelTimeAndOperations) {
  collector::CommunicatorSnapshot before = EmptyCommunicator(1, 0);
  collector::CommunicatorSnapshot overflow = Derived(1, 0, 1'000'000'000);
  before.is_overflow = overflow.is_overflow = true;
  SeriesMemory memory;
  ScrapedNode(NodeOfOne(before), {}, memory);
  const ScrapedNode scrape(NodeOfOne(overflow), {}, memory);
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds, "comm=other,comm_name=,rank=,gpu=,uid=1000,"),
            2);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPointKernelSeconds, "comm=other"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPoint, "comm=other"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations, "comm=other"), 1);
  for (const Metric metric : {Metric::kRankSteps, Metric::kNodeLargeBusBytes,
                              Metric::kComparedOperations, Metric::kNodeProgress})
    EXPECT_TRUE(scrape.Values(metric).empty());
}

TEST(DerivedSeries, OfProcessesAreThoseOfTheirSnapshots) {
  const ScrapedNode scrape(NodeOf({DerivedProcess(7, 3'000'000'000)}));
  EXPECT_EQ(scrape.Value(Metric::kProcessKernelSeconds, "pid=7,"), 3);
  EXPECT_EQ(scrape.Value(Metric::kProcessPointToPoint, "pid=7,"), 1);
  EXPECT_TRUE(
      ScrapedNode(NodeOfOne(Derived(1, 0, 1))).Values(Metric::kProcessKernelSeconds).empty());
}

TEST(DerivedSeries, OfProcessesWithTheSameLabelsAreSumsThatNeverDecrease) {
  SeriesMemory memory(Without("pid"));
  const auto value = [&](collector::NodeSnapshot node) {
    return ScrapedNode(std::move(node), Without("pid"), memory)
        .Value(Metric::kProcessKernelSeconds);
  };
  EXPECT_EQ(value(NodeOf({DerivedProcess(7, 3'000'000'000), DerivedProcess(8, 1'000'000'000),
                          DerivedProcess(9, 1'000'000'000)})),
            5);
  EXPECT_EQ(value(NodeOf({DerivedProcess(8, 1'000'000'000), DerivedProcess(9, 2'000'000'000)})), 6);
}

}  // namespace
}  // namespace nccl_exporter::exporter
