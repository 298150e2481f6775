// SPDX-License-Identifier: Apache-2.0
// Communicators that share their labels, and nodes with more series than the limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  collector::CommunicatorSnapshot overflow = Overflow();
  AddOperation(overflow, Function::kBroadcast, 100, 0);
  collector::ProcessSnapshot rank0 = ProcessOf(1, {overflow});
  collector::ProcessSnapshot rank1 = ProcessOf(2, {overflow});
  collector::ProcessSnapshot stranger = ProcessOf(3, {overflow});
  rank0.identity = rank1.identity = {{"SLURM_JOB_ID", "5"}};
  const ScrapedNode scrape(NodeOf({rank0, rank1, stranger}));
  EXPECT_THAT(
      scrape.Values(Metric::kApiCalls),
      testing::UnorderedElementsAre(
          testing::Pair(
              "comm=other,comm_name=,rank=,gpu=,uid=1000,slurm_job_id=5,function=Broadcast,", 2),
          testing::Pair("comm=other,comm_name=,rank=,gpu=,uid=1000,function=Broadcast,", 1)));
  EXPECT_TRUE(scrape.Values(Metric::kStartedSequence).empty());
  EXPECT_TRUE(scrape.Values(Metric::kRankInfo).empty());
}

TEST(SeriesMergingTest, ACommunicatorWithAllFunctionsFitsTheRoomKeptForOthers) {
  collector::CommunicatorSnapshot overflow = Overflow();
  for (size_t i = 0; i < kFunctionCount; ++i)
    AddOperation(overflow, static_cast<Function>(i), 64, 0);
  overflow.ranks = 8;  // as in a fold, where bus bytes are known
  MetricFilter most;
  most.SetDurationBounds("0.001,0.002,0.004,0.008,0.016,0.032,0.064,0.128,0.25,0.5,1,2,4,8,16,32");
  most.SetBandwidthBounds(
      "1e8,2e8,4e8,8e8,1e9,2e9,4e9,8e9,1e10,2e10,4e10,8e10,1e11,2e11,4e11,8e11");
  ASSERT_EQ(most.duration_bounds().size(), kMaxClassicBounds);
  ASSERT_EQ(most.bandwidth_bounds().size(), kMaxClassicBounds);
  const auto samples = [&](const collector::NodeSnapshot& node) {
    return ScrapedNode(node, kSeriesLimit, most).samples();
  };
  EXPECT_LE(samples(NodeOfOne(overflow)) - samples(NodeOf({ProcessOf(1, {})})), kSeriesForOthers);
}

TEST(SeriesMergingTest, CommunicatorsBeyondTheCapFoldIntoOther) {
  std::vector<collector::CommunicatorSnapshot> communicators;
  for (uint64_t id = 1; id <= 10; ++id) communicators.push_back(BusyCommunicator(id));
  const collector::NodeSnapshot snapshot = NodeOf({ProcessOf(1, communicators)});
  const ScrapedNode whole(snapshot);
  ASSERT_EQ(whole.drops(), SeriesDrops{});

  const size_t limit = whole.samples() / 2;
  const ScrapedNode capped(snapshot, limit);
  EXPECT_LE(capped.samples(), limit);
  const size_t kept = capped.Values(Metric::kRankInfo).size();
  EXPECT_GE(kept, 3u);
  EXPECT_LE(kept, 4u);
  EXPECT_EQ(capped.Value(Metric::kRankInfo, "comm=0000000000000001,"), 1) << "the first are kept";
  const double folded = static_cast<double>(10 - kept);
  EXPECT_EQ(capped.Value(Metric::kApiCalls,
                         "comm=other,comm_name=,rank=,gpu=,uid=1000,function=AllReduce,"),
            folded);
  EXPECT_EQ(
      capped.Value(Metric::kCollectiveBusBytes,
                   "comm=other,comm_name=,rank=,gpu=,uid=1000,collective=AllReduce,size=1048576,"),
      folded * (4 << 20) * 1.75);
  const size_t per_communicator =
      (whole.samples() - ScrapedNode(NodeOf({ProcessOf(1, {})})).samples()) / 10;
  EXPECT_EQ(capped.drops(), (SeriesDrops{.folded = (10 - kept) * per_communicator, .left_out = 0}));
}

// The user with few communicators started last.
TEST(SeriesMergingTest, NoUserIsFoldedBecauseOfAnother) {
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t pid = 1; pid <= 3; ++pid) {
    std::vector<collector::CommunicatorSnapshot> communicators;
    for (uint64_t id = 1; id <= 8; ++id) communicators.push_back(BusyCommunicator(pid * 100 + id));
    processes.push_back(ProcessOf(pid, communicators));
    processes.back().uid = 1001;
  }
  processes.push_back(ProcessOf(4, {BusyCommunicator(1), BusyCommunicator(2)}));
  processes.back().uid = 1002;
  const size_t limit = ScrapedNode(NodeOf(processes)).samples() / 2;
  const ScrapedNode capped(NodeOf(processes), limit);
  EXPECT_LE(capped.samples(), limit);
  EXPECT_GT(capped.drops().folded, 0u);
  EXPECT_EQ(capped.Value(Metric::kRankInfo, "comm=0000000000000001,"), 1);
  EXPECT_EQ(capped.Value(Metric::kRankInfo, "comm=0000000000000002,"), 1);
  EXPECT_EQ(capped.Value(Metric::kProcessAlive, "pid=4,"), 1);
}

TEST(SeriesMergingTest, WhatFitsNowhereIsLeftOutAndCounted) {
  constexpr size_t kJobs = 6;
  constexpr size_t kGaugesAndInfos = 5;  // which comm="other" does not have
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t job = 1; job <= kJobs; ++job) {
    processes.push_back(ProcessOf(job, {}));
    processes.back().identity = {{"SLURM_JOB_ID", std::to_string(job)}};
  }
  const size_t without_communicators = ScrapedNode(NodeOf(processes)).samples();
  for (collector::ProcessSnapshot& process : processes)
    process.communicators = {BusyCommunicator(process.pid)};
  const size_t per_communicator =
      (ScrapedNode(NodeOf(processes)).samples() - without_communicators) / kJobs;

  // Room for one communicator of its own and, in what is kept for them, one comm="other".
  const size_t limit = without_communicators + per_communicator + kSeriesForOthers;
  const ScrapedNode scrape(NodeOf(processes), limit);
  EXPECT_LE(scrape.samples(), limit);
  EXPECT_EQ(scrape.Value(Metric::kRankInfo, "slurm_job_id=1,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kApiCalls,
                         "comm=other,comm_name=,rank=,gpu=,uid=1000,slurm_job_id=2,function=Send,"),
            1);
  EXPECT_EQ(scrape.Values(Metric::kApiCalls).size(), 2u * kFunctionCount);
  EXPECT_EQ(scrape.drops(),
            (SeriesDrops{.folded = (kJobs - 1) * per_communicator,
                         .left_out = (kJobs - 2) * (per_communicator - kGaugesAndInfos)}));
}

TEST(SeriesMergingTest, ProcessesBeyondTheCapAreLeftOut) {
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t pid = 1; pid <= 100; ++pid) processes.push_back(ProcessOf(pid, {}));
  constexpr size_t kLimit = 1000;
  const ScrapedNode scrape(NodeOf(processes), kLimit);
  EXPECT_LE(scrape.samples(), kLimit);
  EXPECT_EQ(scrape.drops().left_out % (kLossCount + 2), 0u) << "losses, alive, stopped";
  EXPECT_GT(scrape.drops().left_out, 0u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
