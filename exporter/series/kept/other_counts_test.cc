// SPDX-License-Identifier: Apache-2.0
// comm="other" while communicators are folded into it and get their series back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr size_t kFoldsAll = kSeriesForOthers + 1;
const std::string kOther = "comm=other,";

// A node whose processes, communicators and limit change from scrape to scrape, 15 s apart.
class PlayedScrapes {
 public:
  explicit PlayedScrapes(const MetricFilter& filter = {}) : filter_(filter) {
    StartDaemon();
    Start(1);
  }

  collector::ProcessSnapshot& Start(uint64_t pid) {
    node.processes.push_back(ProcessOf(pid, {}));
    node.processes.back().start_realtime_ns = node.taken_realtime_ns;
    return node.processes.back();
  }
  // Created now, in the first process.
  collector::CommunicatorSnapshot& Create(uint64_t id) {
    collector::CommunicatorSnapshot communicator = EmptyCommunicator(id, 0);
    communicator.slot = static_cast<uint32_t>(id);
    communicator.created_realtime_ns = node.taken_realtime_ns + kSecond;
    auto& all = node.processes.front().communicators;
    all.reserve(100);  // references stay valid
    return all.emplace_back(std::move(communicator));
  }
  void Remove(uint64_t id) {
    std::erase_if(node.processes.front().communicators,
                  [&](const auto& communicator) { return communicator.id == id; });
  }
  static void Work(collector::CommunicatorSnapshot& communicator, uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i)
      AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  }

  ScrapedNode Scrape(size_t limit) {
    node.taken_realtime_ns += 15 * kSecond;
    return ScrapedNode(AssumedBookOf(node), filter_, *memory_, limit);
  }
  // Calls in comm="other".
  std::optional<double> Other(size_t limit) {
    return Scrape(limit).Value(Metric::kApiCalls, kOther);
  }
  void StartDaemon() { memory_ = std::make_unique<SeriesMemory>(filter_); }

  collector::NodeSnapshot node = [] {
    collector::NodeSnapshot start;
    start.taken_realtime_ns = 1'700'000'000 * kSecond;
    return start;
  }();

 private:
  MetricFilter filter_;
  std::unique_ptr<SeriesMemory> memory_;
};

// Regressions: the sum fell by the whole life of a communicator that got its series back, and rose
// by it when one was folded.
TEST(OtherCountsTest, CountWhatAMemberDoesWhileItIsFolded) {
  PlayedScrapes play;
  collector::CommunicatorSnapshot& first = play.Create(1);
  play.Work(first, 100);
  EXPECT_EQ(play.Other(kFoldsAll), 0) << "its past may be in its own series";
  play.Work(first, 5);
  EXPECT_EQ(play.Other(kFoldsAll), 5);
  play.Work(first, 7);
  const ScrapedNode named = play.Scrape(kSeriesLimit);
  EXPECT_EQ(named.Values(Metric::kApiCalls).size(), 1u);
  EXPECT_EQ(named.Value(Metric::kApiCalls, "comm=0000000000000001,"), 112);
  play.Work(first, 3);
  EXPECT_EQ(play.Other(kSeriesLimit), std::nullopt);
  play.Work(first, 2);
  EXPECT_EQ(play.Other(kFoldsAll), 7) << "what came after its own series ended";
  play.Work(first, 1);
  EXPECT_EQ(play.Other(kFoldsAll), 8);
}

TEST(OtherCountsTest, CountAllOfANewMemberAndKeepItAfterItsEnd) {
  PlayedScrapes play;
  play.Work(play.Create(1), 100);
  EXPECT_EQ(play.Other(kFoldsAll), 0);
  play.Work(play.Create(2), 4);
  EXPECT_EQ(play.Other(kFoldsAll), 4);
  play.Work(play.node.processes[0].communicators[1], 2);
  EXPECT_EQ(play.Other(kFoldsAll), 6);
  play.Remove(2);
  EXPECT_EQ(play.Other(kFoldsAll), 6);
  play.Remove(1);
  EXPECT_EQ(play.Other(kFoldsAll), std::nullopt) << "no member";
  play.Work(play.Create(3), 1);
  EXPECT_EQ(play.Other(kFoldsAll), 7);
}

TEST(OtherCountsTest, CountOverflowSlotsAsMembersThatAreAlwaysFolded) {
  PlayedScrapes play;
  collector::CommunicatorSnapshot overflow = Overflow();
  play.Work(overflow, 50);
  play.node.processes[0].communicators = {overflow};
  EXPECT_EQ(play.Other(kSeriesLimit), 0);
  play.Work(play.node.processes[0].communicators[0], 5);
  EXPECT_EQ(play.Other(kSeriesLimit), 5);
  play.Work(overflow, 4);  // of a second process, which starts now
  play.Start(2).communicators = {overflow};
  EXPECT_EQ(play.Other(kSeriesLimit), 59);
  play.node.processes.pop_back();
  EXPECT_EQ(play.Other(kSeriesLimit), 59);
}

// PromQL takes a start at 0 as it is.
TEST(OtherCountsTest, StartAtZeroWithTheDaemon) {
  PlayedScrapes play;
  collector::CommunicatorSnapshot& one = play.Create(1);
  play.Work(one, 100);
  play.Other(kFoldsAll);
  play.Work(one, 40);
  EXPECT_EQ(play.Other(kFoldsAll), 40);
  play.StartDaemon();
  play.Work(one, 5);
  const ScrapedNode restarted = play.Scrape(kFoldsAll);
  EXPECT_EQ(restarted.Value(Metric::kApiCalls, kOther), 0);
  EXPECT_EQ(restarted.Value(Metric::kCollectiveOperations, "size=1048576,"), 0);
  play.Work(one, 3);
  EXPECT_EQ(play.Other(kFoldsAll), 3);
}

// Regression: a file that one snapshot could not read was counted twice.
TEST(OtherCountsTest, CountNothingTwiceIfASnapshotLacksAMember) {
  PlayedScrapes play;
  play.Work(play.Create(1), 100);
  play.Work(play.Create(2), 1000);
  play.Other(kFoldsAll);
  const collector::CommunicatorSnapshot lacked = play.node.processes[0].communicators[1];
  play.Remove(2);
  EXPECT_EQ(play.Other(kFoldsAll), 0);
  play.node.processes[0].communicators.push_back(lacked);
  EXPECT_EQ(play.Other(kFoldsAll), 0);
  play.Work(play.node.processes[0].communicators[1], 2);
  EXPECT_EQ(play.Other(kFoldsAll), 2);
}

TEST(OtherCountsTest, AreKeptWhileAProcessOfTheJobIsThere) {
  PlayedScrapes play;
  play.Work(play.Create(1), 1);
  play.Other(kFoldsAll);
  play.Work(play.node.processes[0].communicators[0], 9);
  EXPECT_EQ(play.Other(kFoldsAll), 9);
  const collector::ProcessSnapshot process = play.node.processes[0];
  play.node.processes[0].communicators.clear();
  EXPECT_EQ(play.Other(kFoldsAll), std::nullopt);
  play.node.processes = {process};
  EXPECT_EQ(play.Other(kFoldsAll), 9);
  play.node.processes.clear();
  EXPECT_EQ(play.Other(kFoldsAll), std::nullopt);
  play.node.processes = {process};
  EXPECT_EQ(play.Other(kFoldsAll), 0) << "as for a new job";
}

TEST(OtherCountsTest, OfAScrapeDoNotChangeWithTheNext) {
  PlayedScrapes play;
  collector::CommunicatorSnapshot& one = play.Create(1);
  play.Scrape(kFoldsAll);
  play.Work(one, 1);
  const ScrapedNode scrape = play.Scrape(kFoldsAll);
  const std::vector<uint64_t> counts = scrape.Counts(Metric::kCollectiveDuration);
  play.Work(one, 1);
  play.Scrape(kFoldsAll);
  EXPECT_EQ(scrape.Counts(Metric::kCollectiveDuration), counts);
}

// The kept counts of merged communicators that are gone outlast a fold of the others.
TEST(OtherCountsTest, SumsOfDroppedLabelsComeBackNoLower) {
  MetricFilter filter;
  EXPECT_EQ(filter.DropLabel("comm"), "");
  PlayedScrapes play(filter);
  play.Work(play.Create(1), 10);
  play.Work(play.Create(2), 5);
  const auto named = [&](size_t limit) {
    return play.Scrape(limit).Value(Metric::kApiCalls, "comm_name=,rank=0,");
  };
  EXPECT_EQ(named(kSeriesLimit), 15);
  play.Remove(1);
  EXPECT_EQ(named(kSeriesLimit), 15);
  EXPECT_EQ(named(kFoldsAll), std::nullopt);
  EXPECT_EQ(named(kSeriesLimit), 15);
}

std::string NameOf(uint64_t id) {
  char name[32];
  std::snprintf(name, sizeof name, "comm=%016llx,", static_cast<unsigned long long>(id));
  return name;
}

// Fails if a counter of a communicator is forgotten in what a scrape adds.
TEST(OtherCountsTest, HaveAllCountersOfAMember) {
  // Counters of a rank and its node: they have no meaning for a sum.
  const std::set<std::string_view> no_sums{"nccl_collective_arrival_lateness_seconds_total",
                                           "nccl_collective_last_arrivals_total",
                                           "nccl_collective_compared_operations_total",
                                           "nccl_rank_steps_total",
                                           "nccl_rank_step_wait_seconds_total",
                                           "nccl_node_large_bus_bytes_total",
                                           "nccl_node_large_busy_seconds_total",
                                           "nccl_node_large_timed_operations_total",
                                           "nccl_node_progress_total"};
  PlayedScrapes play;
  play.Create(1);
  play.Scrape(kFoldsAll);
  collector::CommunicatorSnapshot& one = play.node.processes[0].communicators[0];
  for (size_t i = 0; i < kFunctionCount; ++i) {
    for (const uint64_t bytes : {1, 10 << 20, 300 << 20})
      AddOperation(one, static_cast<Function>(i), bytes, 1000 + bytes);
  }
  one.network.emplace();
  for (collector::NetworkDirectionCounts& counts : one.network->directions)
    counts = {.wait_ns = {1, 2, 3, 4}, .bytes = 5, .operations = 6};
  one.network_bus_bytes = {{.all = {30, 20}, .timed = {3, 2}}};
  const ScrapedNode named = ScrapedNode(AssumedBookOf(play.node));
  const ScrapedNode folded = play.Scrape(kFoldsAll);
  for (const MetricRow& row : kMetrics) {
    if (row.scope != LabelScope::kCommunicator) continue;
    if (row.type != MetricType::kCounter && row.type != MetricType::kHistogram) continue;
    std::vector<double> values, values_of_other;
    for (const auto& [labels, value] : named.Values(row.id)) values.push_back(value);
    for (const auto& [labels, value] : folded.Values(row.id)) values_of_other.push_back(value);
    if (no_sums.contains(row.name)) values.clear();
    EXPECT_EQ(values_of_other, values) << row.name;
    EXPECT_NE(values.empty(), !no_sums.contains(row.name)) << row.name;
  }
}

// All counters and sums of comm="other".
std::map<std::string, double> CountsOfOther(const ScrapedNode& scrape) {
  std::map<std::string, double> counts;
  for (const MetricRow& row : kMetrics) {
    if (row.type != MetricType::kCounter && row.type != MetricType::kHistogram) continue;
    for (const auto& [labels, value] : scrape.Values(row.id)) {
      if (labels.starts_with(kOther)) counts[std::string(row.name) + labels] = value;
    }
  }
  return counts;
}

// Each scrape adds to it what those have done since the scrape before that it has without series.
TEST(OtherCountsTest, NeverDecreaseAndNeverJumpWhateverComesAndGoes) {
  std::mt19937 random(7);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  PlayedScrapes play;
  std::map<uint64_t, double> done, done_before;  // calls, by communicator
  std::map<std::string, double> latest;
  double expected = 0;
  bool is_first = true;
  size_t folds = 0, returns = 0;
  std::map<uint64_t, bool> was_folded;
  for (uint64_t step = 0; step < 300; ++step) {
    auto& communicators = play.node.processes[0].communicators;
    if (communicators.size() < 8 || below(4) == 0) play.Create(1000 + step);
    if (communicators.size() > 20) play.Remove(communicators[below(communicators.size())].id);
    for (collector::CommunicatorSnapshot& communicator : communicators) {
      const uint64_t operations = below(20);
      play.Work(communicator, operations);
      communicator.network.emplace().directions[0].operations += operations;
      done[communicator.id] += static_cast<double>(operations);
    }
    const ScrapedNode scrape = play.Scrape(kFoldsAll + below(800));
    const std::map<std::string, double> counts = CountsOfOther(scrape);
    for (const auto& [series, value] : counts) EXPECT_GE(value, latest[series]) << series;
    for (const auto& [series, value] : counts) latest[series] = value;
    bool any_folded = false;
    for (const collector::CommunicatorSnapshot& communicator : communicators) {
      const bool is_folded = !scrape.Value(Metric::kRankInfo, NameOf(communicator.id)).has_value();
      any_folded |= is_folded;
      folds += is_folded && !was_folded[communicator.id];
      returns += !is_folded && was_folded[communicator.id];
      was_folded[communicator.id] = is_folded;
      if (is_folded && !is_first) expected += done[communicator.id] - done_before[communicator.id];
    }
    done_before = done;
    if (!any_folded) continue;
    is_first = false;
    EXPECT_EQ(scrape.Value(Metric::kApiCalls, kOther), expected) << step;
    EXPECT_EQ(
        scrape.Value(Metric::kCollectiveOperations,
                     kOther + "comm_name=,rank=,gpu=,uid=1000,collective=AllReduce,size=1048576,"),
        expected);
  }
  EXPECT_GT(folds, 100u);
  EXPECT_GT(returns, 50u);
}

}  // namespace
}  // namespace nccl_exporter::exporter
