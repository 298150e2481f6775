// SPDX-License-Identifier: Apache-2.0
// Sums of communicators with the same labels, which come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "exporter/series/kept/kept_counts.h"
#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr uint64_t kBytes = 1000 << 20;

// `count` communicators of a user, all with the labels of comm 1, rank 0.
collector::ProcessSnapshot Made(uint64_t uid, uint64_t generation, uint64_t ranks, size_t count) {
  collector::ProcessSnapshot process = ProcessOf(uid, {});
  process.uid = uid;
  process.file.inode = uid;
  for (size_t slot = 0; slot < count; ++slot) {
    collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
    communicator.slot = static_cast<uint32_t>(slot);
    communicator.generation = generation;
    communicator.ranks = ranks + slot;
    AddOperation(communicator, Function::kAllReduce, kBytes, 1000);
    process.communicators.push_back(communicator);
  }
  return process;
}

// A scrape per call, of processes with one label set each.
class Scrapes {
 public:
  // Numbers of ranks by which bytes are kept, by process.
  std::vector<size_t> Scrape(std::vector<collector::ProcessSnapshot> processes) {
    const auto book = std::make_shared<Book>(BookOf(NodeOf(std::move(processes))));
    kept_.Begin(book);
    std::vector<size_t> sums;
    for (const collector::ProcessSnapshot& process : book->node->processes) {
      while (labels_.size() <= sums.size()) labels_.push_back(std::make_shared<LabelSet>(Labels{}));
      SeriesGroup group{.labels = labels_[sums.size()], .members = {}};
      for (const collector::CommunicatorSnapshot& communicator : process.communicators)
        group.members.push_back({.process = &process, .communicator = &communicator});
      kept_.CountShared(group);
      sums.push_back(group.timed_by_ranks->size());
    }
    kept_.End({});
    return sums;
  }

 private:
  KeptCounts kept_;
  std::vector<SharedLabels> labels_;
};

TEST(SharedCountsTest, NumbersOfRanksThatChangeWithEachScrapeTakeNoMoreMemory) {
  Scrapes scrapes;
  constexpr size_t kSlots = 100;
  for (uint64_t i = 1; i <= 20; ++i) {
    const std::vector<size_t> kept =
        scrapes.Scrape({Made(1000, i, i * kSlots, kSlots), Made(1001, i, 8 + i, 2)});
    EXPECT_LE(kept[0], 1 + kMostFurtherRanks);
    EXPECT_EQ(kept[1], i + 1) << "no user pays for another";
  }
}

TEST(SharedCountsTest, BeyondTheLimitNoSeriesDecreases) {
  SeriesMemory memory;
  double bus_bytes = 0, operations = 0;
  constexpr size_t kSlots = 100;
  // First numbers of ranks that rise, and then fall below those that are kept.
  for (const uint64_t ranks : {200, 300, 400, 500, 600, 700, 800, 2, 99}) {
    const ScrapedNode scrape(NodeOf({Made(1000, ranks, ranks, kSlots)}), {}, memory);
    const double more = *scrape.Value(Metric::kCollectiveBusBytes, "size=268435456,");
    EXPECT_GE(more, bus_bytes) << ranks;
    EXPECT_LE(more, 2 * *scrape.Value(Metric::kCollectiveBytes, "size=268435456,")) << ranks;
    operations += kSlots;
    EXPECT_EQ(scrape.Value(Metric::kCollectiveOperations, "size=268435456,"), operations) << ranks;
    bus_bytes = more;
  }
}

// Regression: a sum of forged counts began at 0 again, and buckets of more than 2^63 together made
// Prometheus refuse the scrape.
TEST(SharedCountsTest, SumsThatAreFullStayFull) {
  SeriesMemory memory;
  for (uint64_t generation = 1; generation <= 4; ++generation) {
    collector::ProcessSnapshot process = Made(1000, generation, 8, 2);
    for (collector::CommunicatorSnapshot& communicator : process.communicators) {
      collector::FunctionSnapshot& counts =
          communicator.functions.Change(static_cast<size_t>(Function::kAllReduce));
      counts.sizes[kSizeClassCount - 1].bytes = uint64_t{1} << 63;
      counts.duration.fill(collector::kMostHistogramCount);
    }
    const ScrapedNode scrape(NodeOf({process}), {}, memory);
    EXPECT_EQ(scrape.Value(Metric::kCollectiveBytes, "size=268435456,"), std::ldexp(1.0, 64));
    EXPECT_THAT(scrape.Counts(Metric::kCollectiveDuration),
                testing::Each(collector::kMostHistogramCount));
  }
}

// The first member has histograms by size, until it runs out of them.
TEST(SharedCountsTest, DurationsBySizeAndTheRestAreAllDurations) {
  MetricFilter filter;
  filter.SplitDurations();
  SeriesMemory memory(filter);
  collector::ProcessSnapshot process = Made(1000, 1, 8, 2);
  const auto function = [&](size_t member) -> collector::FunctionSnapshot& {
    return process.communicators[member].functions.Change(
        static_cast<size_t>(Function::kAllReduce));
  };
  const auto durations = [&] {
    const ScrapedNode scrape(NodeOf({process}), filter, memory);
    double seconds = 0;
    for (const auto& [labels, value] : scrape.Values(Metric::kCollectiveDuration)) seconds += value;
    return std::pair(scrape.Values(Metric::kCollectiveDuration).size(), std::round(seconds * 1e6));
  };
  function(1).duration_by_size = {};
  EXPECT_EQ(durations(), std::pair(size_t{2}, 2.0));
  AddOperation(process.communicators[0], Function::kAllReduce, kBytes, 3000);
  EXPECT_EQ(durations(), std::pair(size_t{2}, 5.0));
  function(0).duration_by_size = {};
  AddOperation(process.communicators[1], Function::kAllReduce, kBytes, 4000);
  function(1).duration_by_size = {};
  EXPECT_EQ(durations(), std::pair(size_t{2}, 9.0));
  process.communicators.erase(process.communicators.begin());
  EXPECT_EQ(durations(), std::pair(size_t{2}, 9.0));
}

}  // namespace
}  // namespace nccl_exporter::exporter
