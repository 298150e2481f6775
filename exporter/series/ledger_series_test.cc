// SPDX-License-Identifier: Apache-2.0
// Series of the book: when they appear, and which are summed.
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

std::map<OperationKind, LargeCounts> LargeOf(Function function) {
  return {{{.function = function, .size_class = 4},
           {.timed_operations = 3, .bus_bytes = 5 * kLargeBytes, .busy_ns = 2'000'000'000}}};
}

// With collectives and sends, all timed, on two nodes; it counts for its node.
Counted Member(uint64_t id, uint64_t rank, uint64_t kernel_ns) {
  Counted member{.communicator = EmptyCommunicator(id, rank), .counts = RankCounts()};
  AddOperation(member.communicator, Function::kAllReduce, kLargeBytes, kernel_ns);
  AddOperation(member.communicator, Function::kSend, 8, kernel_ns);
  RankCounts& counts = *member.counts;
  counts.kernel_ns = {kernel_ns, kernel_ns};
  counts.steps = {
      .steps = kernel_ns,
      .waits_ns = {{{.function = Function::kAllReduce, .size_class = 0}, kernel_ns},
                   {{.function = Function::kAllReduce, .size_class = 4}, 2 * kernel_ns}},
      .since_realtime_ns = 0};
  counts.node = {
      .is_lowest = true, .progress = 40, .compared = 100, .large = LargeOf(Function::kAllReduce)};
  return member;
}

CountedProcess Process(uint64_t pid, uint64_t kernel_ns) {
  return {.pid = pid,
          .communicators = {Member(pid, 0, kernel_ns)},
          .counts = ProcessCounts{.kernel_ns = kernel_ns, .point_to_point_operations = 1}};
}

MetricFilter Without(const std::string& label) {
  MetricFilter filter;
  EXPECT_EQ(filter.DropLabel(label), "");
  return filter;
}

TEST(BookSeries, HaveTheLabelsOfTheirCommunicator) {
  const ScrapedNode scrape(BookOfOne(Member(1, 3, 1'000'000'000)));
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

TEST(BookSeries, OfTheNodeAreOnTheRowOfItsLowestRank) {
  Counted other = Member(1, 4, 1);
  other.counts->node.reset();
  Counted former = Member(1, 2, 1);
  former.counts->node->is_lowest = false;
  const ScrapedNode scrape(BookOf({{1, {former}}, {2, {Member(1, 3, 1)}}, {3, {other}}}));
  EXPECT_EQ(scrape.Values(Metric::kCommunicatorRanks).size(), 1u);
  EXPECT_EQ(scrape.Value(Metric::kCommunicatorRanks, "rank=3,"), 8);
  EXPECT_EQ(scrape.Values(Metric::kComparedOperations).size(), 2u);
  EXPECT_EQ(scrape.Value(Metric::kComparedOperations, "rank=2,"), 100) << "what it has counted";
  EXPECT_EQ(scrape.Value(Metric::kComparedOperations, "rank=4,"), std::nullopt);
}

TEST(BookSeries, OfSendsAndReceivesAppearWithTheFirstThatIsTimed) {
  Counted member{.communicator = EmptyCommunicator(1, 0), .counts = RankCounts()};
  collector::CommunicatorSnapshot& communicator = member.communicator;
  AddOperation(communicator, Function::kAllReduce, 8, 1);
  const auto kernel_seconds = [&] {
    return ScrapedNode(BookOfOne(member)).Value(Metric::kRankPointToPointKernelSeconds);
  };
  EXPECT_EQ(ScrapedNode(BookOfOne(member)).Value(Metric::kRankPointToPoint), std::nullopt);
  EXPECT_EQ(kernel_seconds(), std::nullopt);
  AddOperation(communicator, Function::kRecv, 8, 0);
  EXPECT_EQ(ScrapedNode(BookOfOne(member)).Value(Metric::kRankPointToPoint), 1);
  EXPECT_EQ(kernel_seconds(), std::nullopt);
  AddOperation(communicator, Function::kRecv, 8, 1);
  EXPECT_EQ(kernel_seconds(), 0);
}

// 0 would look like a rank that never waits.
TEST(BookSeries, EndWithTheTiming) {
  Counted member = Member(1, 0, 1);
  member.communicator.timing_source = TimingSource::kNone;
  const ScrapedNode scrape(BookOfOne(member));
  EXPECT_TRUE(scrape.Values(Metric::kRankKernelSeconds).empty());
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations), 1);
}

TEST(BookSeries, OfBooksWithoutCountsAreAbsent) {
  Counted member = Member(1, 0, 1);
  member.counts.reset();
  const ScrapedNode scrape(BookOfOne(member));
  for (const Metric metric :
       {Metric::kRankKernelSeconds, Metric::kRankTimedOperations, Metric::kRankSteps,
        Metric::kNodeLargeBusBytes, Metric::kComparedOperations, Metric::kCommunicatorRanks}) {
    EXPECT_TRUE(scrape.Values(metric).empty());
  }
}

TEST(BookSeries, OfRanksWithoutTheLabelAreSums) {
  const MetricFilter filter = [] {
    MetricFilter without = Without("rank");
    EXPECT_EQ(without.DropLabel("gpu"), "");
    return without;
  }();
  const ScrapedNode scrape(
      BookOf({{1, {Member(1, 0, 1'000'000'000)}}, {2, {Member(1, 1, 2'000'000'000)}}}),
      kSeriesLimit, filter);
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds), 6);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPointKernelSeconds), 3);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations), 2);
  EXPECT_EQ(scrape.Value(Metric::kRankSteps), 3'000'000'000);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds), 4);
}

TEST(BookSeries, OfTheLargestCollectivesAreSumsOverAllMembers) {
  const Counted other = Member(1, 0, 1);
  Counted changed = other;
  changed.counts->node->large = LargeOf(Function::kAllGather);
  const ScrapedNode scrape(BookOf({{1, {other}}, {2, {other}}, {3, {changed}}}));
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds, "AllReduce"), 4);
  EXPECT_EQ(scrape.Value(Metric::kNodeLargeBusySeconds, "AllGather"), 2);
}

TEST(BookSeries, OfTheLargestCollectiveNeedTheLabelSize) {
  const ScrapedNode scrape(BookOfOne(Member(1, 0, 1)), kSeriesLimit, Without("size"));
  EXPECT_TRUE(scrape.Values(Metric::kNodeLargeBusBytes).empty());
  EXPECT_EQ(scrape.Value(Metric::kRankSteps), 1);
}

TEST(BookSeries, OfMembersThatAreGoneStayInTheSum) {
  SeriesMemory memory(Without("comm"));
  const auto scrape = [&](Book book) {
    return ScrapedNode(std::move(book), Without("comm"), memory);
  };
  const Counted first = Member(1, 0, 1'000'000'000);
  Counted second = Member(2, 0, 2'000'000'000);
  second.communicator.slot = 1;
  EXPECT_EQ(scrape(BookOfOne(first)).Value(Metric::kRankKernelSeconds), 2);
  const Book both = BookOf({{1, {first, second}}, {2, {second}}});
  EXPECT_EQ(scrape(both).Value(Metric::kRankKernelSeconds), 10);
  const ScrapedNode left = scrape(BookOf({{1, {second}}, {2, {second}}}));
  EXPECT_EQ(left.Value(Metric::kRankKernelSeconds), 10);
  EXPECT_EQ(left.Value(Metric::kRankSteps), 5'000'000'000);
}

TEST(BookSeries, OfStepsOutlastTheRankThatReportedThem) {
  SeriesMemory memory(Without("comm"));
  const auto steps = [&](Book book) {
    return ScrapedNode(std::move(book), Without("comm"), memory).Value(Metric::kRankSteps);
  };
  const Counted lowest = Member(1, 0, 1'000'000'000);
  Counted other = Member(2, 0, 2'000'000'000);
  other.counts->node->is_lowest = false;
  EXPECT_EQ(steps(BookOf({{1, {lowest}}, {2, {other}}})), 3'000'000'000);
  EXPECT_EQ(steps(BookOf({{2, {other}}})), 3'000'000'000);
}

TEST(BookSeries, OfCommunicatorsWithoutSeriesAreKernelTimeAndOperations) {
  collector::CommunicatorSnapshot before = EmptyCommunicator(1, 0);
  Counted overflow = Member(1, 0, 1'000'000'000);
  before.is_overflow = overflow.communicator.is_overflow = true;
  SeriesMemory memory;
  ScrapedNode(NodeOfOne(before), {}, memory);
  const ScrapedNode scrape(BookOfOne(overflow), {}, memory);
  EXPECT_EQ(scrape.Value(Metric::kRankKernelSeconds, "comm=other,comm_name=,rank=,gpu=,uid=1000,"),
            2);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPointKernelSeconds, "comm=other"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankPointToPoint, "comm=other"), 1);
  EXPECT_EQ(scrape.Value(Metric::kRankTimedOperations, "comm=other"), 1);
  for (const Metric metric : {Metric::kRankSteps, Metric::kNodeLargeBusBytes,
                              Metric::kComparedOperations, Metric::kNodeProgress})
    EXPECT_TRUE(scrape.Values(metric).empty());
}

TEST(BookSeries, OfProcessesAreThoseOfTheirRows) {
  const ScrapedNode scrape(BookOf({Process(7, 3'000'000'000)}));
  EXPECT_EQ(scrape.Value(Metric::kProcessKernelSeconds, "pid=7,"), 3);
  EXPECT_EQ(scrape.Value(Metric::kProcessPointToPoint, "pid=7,"), 1);
  EXPECT_TRUE(
      ScrapedNode(BookOfOne(Member(1, 0, 1))).Values(Metric::kProcessKernelSeconds).empty());
}

TEST(BookSeries, OfProcessesWithTheSameLabelsAreSumsThatNeverDecrease) {
  SeriesMemory memory(Without("pid"));
  const auto value = [&](Book book) {
    return ScrapedNode(std::move(book), Without("pid"), memory)
        .Value(Metric::kProcessKernelSeconds);
  };
  EXPECT_EQ(value(BookOf(
                {Process(7, 3'000'000'000), Process(8, 1'000'000'000), Process(9, 1'000'000'000)})),
            5);
  EXPECT_EQ(value(BookOf({Process(8, 1'000'000'000), Process(9, 2'000'000'000)})), 6);
}

}  // namespace
}  // namespace nccl_exporter::exporter
