// SPDX-License-Identifier: Apache-2.0
// Processes that have ended while a living one has their labels, as after a restart of a container
// in place: there the process has the same pid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kOld = 1, kNew = 2;  // communicators

const std::vector<Metric> kStalled{
    Metric::kStalledCommunicatorRanks,  Metric::kStalledProgress,
    Metric::kStalledProcessProgress,    Metric::kStalledStartedSequence,
    Metric::kStalledCompletedSequence,  Metric::kStalledInFlight,
    Metric::kStalledOldestInFlightStart};

// A rank in an operation, in a process of its own. The file is its number, and the later one has
// the larger.
collector::ProcessSnapshot Rank(uint64_t file, uint64_t id, uint64_t rank) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, rank);
  AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  communicator.completion_is_known = true;
  communicator.started_sequence = 2;
  communicator.completed_sequence = 1;
  communicator.in_flight = {{.function = Function::kAllReduce, .start_realtime_ns = 1}};
  collector::ProcessSnapshot process = ProcessOf(1, {communicator});
  process.file.inode = file;
  process.start_monotonic_ns = static_cast<int64_t>(file);
  process.identity = {{"POD_NAME", "trainer-" + std::to_string(rank)}};
  return process;
}

collector::ProcessSnapshot Ended(collector::ProcessSnapshot process) {
  process.is_alive = false;
  process.is_stopped.reset();
  return process;
}

// A book in which nothing starts or completes any more.
Book StillNodeOf(std::vector<collector::ProcessSnapshot> processes) {
  Book book = AssumedBookOf(NodeOf(std::move(processes)));
  for (Book::Row& row : book.rows) {
    for (std::optional<RankCounts>& counts : row.ranks) counts->is_quiet = true;
  }
  return book;
}

MetricFilter Without(const std::vector<std::string>& labels) {
  MetricFilter filter;
  for (const std::string& label : labels) EXPECT_EQ(filter.DropLabel(label), "");
  return filter;
}

size_t StalledSeries(const ScrapedNode& scrape, const std::string& part) {
  size_t count = 0;
  for (const Metric metric : kStalled) {
    for (const auto& [labels, value] : scrape.Values(metric))
      count += labels.find(part) != std::string::npos ? 1 : 0;
  }
  return count;
}

const std::string kOldLabels = "comm=0000000000000001,";

// Regression: NCCLCollectiveHang fired for a communicator of a container that had restarted.
TEST(ReplacedProcessTest, HasNoStateAnyMore) {
  const collector::ProcessSnapshot old = Ended(Rank(1, kOld, 0));
  const ScrapedNode before(StillNodeOf({old}));
  EXPECT_EQ(before.Value(Metric::kProcessHalted), 1);
  EXPECT_EQ(StalledSeries(before, kOldLabels), 7u);
  EXPECT_EQ(before.Values(Metric::kRankInfo).size(), 1u);
  const ScrapedNode after(StillNodeOf({old, Rank(2, kNew, 0)}));
  EXPECT_EQ(after.Value(Metric::kProcessHalted), 0);
  EXPECT_EQ(StalledSeries(after, kOldLabels), 0u);
  EXPECT_EQ(StalledSeries(after, "comm=0000000000000002,"), 7u);
  for (const Metric metric :
       {Metric::kRankInfo, Metric::kCommunicatorInfo, Metric::kInFlight, Metric::kStartedSequence,
        Metric::kOldestInFlightStart, Metric::kCommunicatorRanks}) {
    EXPECT_EQ(after.Value(metric, kOldLabels), std::nullopt) << RowOf(metric).name;
    EXPECT_EQ(after.Values(metric).size(), 1u) << RowOf(metric).name;
  }
}

TEST(ReplacedProcessTest, KeepsItsCounters) {
  const collector::ProcessSnapshot old = Ended(Rank(1, kOld, 0));
  const ScrapedNode after(StillNodeOf({old, Rank(2, kNew, 0)}));
  EXPECT_EQ(after.Value(Metric::kApiCalls, kOldLabels), 1);
  EXPECT_NE(after.Value(Metric::kRankKernelSeconds, kOldLabels), std::nullopt);
  EXPECT_NE(after.Value(Metric::kNodeProgress, kOldLabels), std::nullopt);
}

TEST(ReplacedProcessTest, LeavesTheOthersOfItsCommunicatorAsTheyAre) {
  std::vector<collector::ProcessSnapshot> processes{Ended(Rank(1, kOld, 0)), Rank(2, kOld, 1),
                                                    Ended(Rank(3, kOld, 2))};
  const ScrapedNode before(StillNodeOf(processes));
  processes.push_back(Rank(4, kNew, 0));
  const ScrapedNode after(StillNodeOf(processes));
  EXPECT_EQ(StalledSeries(after, kOldLabels + "comm_name=,rank=0,"), 0u);
  for (const std::string rank : {"rank=1,", "rank=2,"}) {
    EXPECT_EQ(StalledSeries(after, kOldLabels + "comm_name=," + rank), 7u) << rank;
    EXPECT_EQ(after.Value(Metric::kRankInfo, kOldLabels + "comm_name=," + rank), 1) << rank;
  }
  EXPECT_EQ(after.Value(Metric::kProcessHalted, "pod=trainer-2,"), 1) << "it has not restarted";
  EXPECT_EQ(after.Value(Metric::kNodeProgress, kOldLabels),
            before.Value(Metric::kNodeProgress, kOldLabels))
      << "hangs are detected by it";
}

// Without `pid`, all processes of a user on the node are one to the rules, and it lives.
TEST(ReplacedProcessTest, MayBeAnyOfThoseThatDroppedLabelsMerge) {
  const MetricFilter filter = Without({"pid", "pod"});
  const std::vector<collector::ProcessSnapshot> processes{Ended(Rank(1, kOld, 0)),
                                                          Rank(2, kOld, 1)};
  const ScrapedNode scrape(StillNodeOf(processes), kSeriesLimit, filter);
  EXPECT_EQ(scrape.Value(Metric::kProcessHalted), 0);
  EXPECT_EQ(StalledSeries(scrape, "rank=0,"), 0u);
  EXPECT_EQ(StalledSeries(scrape, "rank=1,"), 7u);
  EXPECT_EQ(scrape.Value(Metric::kRankInfo, "rank=0,"), std::nullopt) << "it is missing";
  const ScrapedNode ended(StillNodeOf({processes[0], Ended(processes[1])}), kSeriesLimit, filter);
  EXPECT_EQ(ended.Value(Metric::kProcessHalted), 1);
  EXPECT_EQ(StalledSeries(ended, "rank=0,"), 7u);
}

// The newest of the ended ranks in one series that is not replaced has its state.
TEST(ReplacedProcessTest, GivesNoStateToASumOfRanks) {
  collector::ProcessSnapshot old = Ended(Rank(1, kOld, 0));
  old.communicators[0].created_realtime_ns += 1;
  const ScrapedNode scrape(StillNodeOf({old, Ended(Rank(2, kOld, 1)), Rank(3, kNew, 0)}),
                           kSeriesLimit, Without({"rank", "gpu", "pod"}));
  EXPECT_EQ(scrape.Values(Metric::kProcessHalted).size(), 1u);
  EXPECT_EQ(StalledSeries(scrape, kOldLabels), 0u) << "both have the labels of the third";
  collector::ProcessSnapshot elsewhere = Ended(Rank(2, kOld, 1));
  elsewhere.pid = 7;
  const ScrapedNode named(StillNodeOf({old, elsewhere, Rank(3, kNew, 0)}), kSeriesLimit,
                          Without({"rank", "gpu", "pod"}));
  EXPECT_EQ(named.Value(Metric::kProcessHalted, "pid=7,"), 1);
  EXPECT_EQ(StalledSeries(named, kOldLabels), 7u);
  EXPECT_EQ(named.Value(Metric::kStalledCommunicatorRanks,
                        "gpu_uuid=GPU-00000000-0000-0000-0000-000000000001,"),
            8);
}

// Regression: in two containers equal entry points have equal pids. A rank that had died in one of
// them was taken for one that had restarted, and vanished.
TEST(ReplacedProcessTest, IsNotReplacedByOneOfAnotherContainer) {
  std::vector<collector::ProcessSnapshot> processes{Ended(Rank(1, kOld, 0)), Rank(2, kNew, 0)};
  processes[0].host_name = "container-a";
  processes[1].host_name = "container-b";
  const ScrapedNode scrape(StillNodeOf(processes));
  EXPECT_EQ(scrape.Value(Metric::kProcessHalted), 1);
  EXPECT_EQ(scrape.Values(Metric::kRankInfo).size(), 2u);
  EXPECT_EQ(StalledSeries(scrape, kOldLabels), 7u);
  processes.push_back(Rank(3, kNew + 1, 0));
  processes[2].host_name = "container-a";
  const ScrapedNode restarted(StillNodeOf(processes));
  EXPECT_EQ(restarted.Value(Metric::kProcessHalted), 0);
  EXPECT_EQ(StalledSeries(restarted, kOldLabels), 0u);
}

// The collector gives containers of equal pids the pod: collector/segments/process_identities.h.
TEST(ReplacedProcessTest, StopsNoNamesakeOfAnotherContainer) {
  std::vector<collector::ProcessSnapshot> processes{Rank(1, kOld, 0), Rank(2, kOld, 1)};
  processes[0].is_stopped = true;
  const ScrapedNode scrape(StillNodeOf(processes));
  EXPECT_EQ(scrape.Values(Metric::kProcessHalted),
            (std::map<std::string, double>{{"pid=1,uid=1000,pod=trainer-0,", 1},
                                           {"pid=1,uid=1000,pod=trainer-1,", 0}}));
  EXPECT_EQ(scrape.Value(Metric::kRankInfo, "pod=trainer-0,"), 1) << "rules join by it";
}

TEST(ReplacedProcessTest, IsNotReplacedByAnEarlierOne) {
  const ScrapedNode scrape(StillNodeOf({Rank(1, kOld, 0), Ended(Rank(2, kNew, 0))}));
  EXPECT_EQ(scrape.Value(Metric::kProcessHalted), 1);
  EXPECT_EQ(scrape.Values(Metric::kRankInfo).size(), 2u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
