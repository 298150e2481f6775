// SPDX-License-Identifier: Apache-2.0
// Series of derived counters: when they appear, and what is summed.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kLargeBytes = 32 << 20;

// With collectives and sends, all timed, on two nodes.
collector::CommunicatorSnapshot Derived(uint64_t id, uint64_t rank, uint64_t kernel_ns) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, rank);
  AddOperation(communicator, Function::kAllReduce, kLargeBytes, kernel_ns);
  AddOperation(communicator, Function::kSend, 8, kernel_ns);
  collector::DerivedCounts& derived = communicator.derived.emplace();
  derived.kernel_ns = {kernel_ns, kernel_ns, 0};
  derived.since_realtime_ns = communicator.created_realtime_ns;
  derived.steps = {
      .steps = kernel_ns,
      .waits_ns = {{{.function = Function::kAllReduce, .size_class = 0}, kernel_ns},
                   {{.function = Function::kAllReduce, .size_class = 4}, 2 * kernel_ns}},
      .since_realtime_ns = 0};
  derived.largest = {.function = Function::kAllReduce, .size_class = 4};
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
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds, "rank=3,gpu=3,uid=1000,traffic=collective,"),
            1);
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds, "traffic=send,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations, "rank=3,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankSteps, "rank=3,"), 1'000'000'000);
  EXPECT_EQ(scrape.Value(Metric::kRankStepWait, "collective=AllReduce,size=0,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankStepWait, "collective=AllReduce,size=16777216,"), 2);
  EXPECT_EQ(scrape.Value(Metric::kRankLargeBusySeconds, "collective=AllReduce,size=16777216,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankLargeTimedOperations, "rank=3,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankLargeBusBytes, "rank=3,"), kLargeBytes * 2 * 7 / 8);
}

TEST(DerivedSeries, OfTrafficAppearWithItsFirstTimedOperation) {
  collector::CommunicatorSnapshot communicator = Derived(1, 0, 1);
  AddOperation(communicator, Function::kRecv, 8, 0);
  EXPECT_FALSE(ScrapedNode(NodeOfOne(communicator))
                   .Value(Metric::kRankKernelSeconds, "traffic=recv")
                   .has_value());
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
  for (const Metric metric : {Metric::kRankKernelSeconds, Metric::kRankTimedOperations,
                              Metric::kRankSteps, Metric::kRankLargeBusBytes}) {
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
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds, "traffic=send,"), 3);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations), 2);
  EXPECT_EQ(scrape.Value(Metric::kRankSteps), 3'000'000'000);
  EXPECT_EQ(scrape.Value(Metric::kRankLargeBusySeconds), 3);
}

// Each is that of all members, so that it does not decrease when one of them chooses another.
TEST(DerivedSeries, OfTheLargestCollectivesAreSumsOverAllMembers) {
  collector::CommunicatorSnapshot other = Derived(1, 0, 1'000'000'000);
  AddOperation(other, Function::kAllGather, kLargeBytes, 5'000'000'000);
  collector::CommunicatorSnapshot changed = other;
  changed.derived->largest = {.function = Function::kAllGather, .size_class = 4};
  const ScrapedNode scrape(NodeOf({ProcessOf(1, {other}), ProcessOf(2, {changed})}));
  EXPECT_EQ(scrape.Value(Metric::kRankLargeBusySeconds, "AllReduce"), 2);
  EXPECT_EQ(scrape.Value(Metric::kRankLargeBusySeconds, "AllGather"), 10);
}

TEST(DerivedSeries, OfTheLargestCollectiveNeedTheLabelsThatNameIt) {
  for (const char* const label : {"size", "collective"}) {
    const ScrapedNode scrape(NodeOfOne(Derived(1, 0, 1)), kSeriesLimit, Without(label));
    EXPECT_TRUE(scrape.Values(Metric::kRankLargeBusBytes).empty()) << label;
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
  EXPECT_EQ(scrape(NodeOfOne(first())).Value(Metric::kRankKernelSeconds, "collective"), 1);
  const auto both = NodeOf({ProcessOf(1, {first(), second()}), ProcessOf(2, {second()})});
  EXPECT_EQ(scrape(both).Value(Metric::kRankKernelSeconds, "collective"), 5);
  const ScrapedNode left = scrape(NodeOf({ProcessOf(1, {second()}), ProcessOf(2, {second()})}));
  EXPECT_EQ(left.Value(Metric::kRankKernelSeconds, "collective"), 5);
  EXPECT_EQ(left.Value(Metric::kRankSteps), 5'000'000'000);
}

TEST(DerivedSeries, OfCommunicatorsWithoutSeriesAreKernelTimeAndTimedOperations) {
  collector::CommunicatorSnapshot overflow = Derived(1, 0, 1'000'000'000);
  overflow.is_overflow = true;
  const ScrapedNode scrape(NodeOfOne(overflow));
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds,
                         "comm=other,comm_name=,rank=,gpu=,uid=1000,traffic=collective"),
            1);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations, "comm=other"), 1);
  EXPECT_TRUE(scrape.Values(Metric::kRankSteps).empty());
  EXPECT_TRUE(scrape.Values(Metric::kRankLargeBusBytes).empty());
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

TEST(DerivedSeries, OfTheStateAreServedIfThereIsOne) {
  collector::NodeSnapshot node;
  EXPECT_TRUE(ScrapedNode(node).Values(Metric::kStateErrors).empty());
  node.state_errors.emplace()[static_cast<size_t>(collector::StateError::kDamaged)] = 3;
  EXPECT_EQ(ScrapedNode(node).Value(Metric::kStateErrors, "reason=damaged"), 3);
  EXPECT_EQ(ScrapedNode(node).Value(Metric::kStateErrors, "reason=foreign"), 0);
}

}  // namespace
}  // namespace nccl_exporter::exporter
