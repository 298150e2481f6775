// SPDX-License-Identifier: Apache-2.0
// Series of a node: labels, values and what is absent.
#include "exporter/series/snapshot_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <string>

#include "exporter/series/labels/series_labels.h"
#include "exporter/testing/scraped_node.h"
#include "exporter/text/utf8.h"
#include "proto/identity_variables.h"
#include "proto/user_labels.h"

namespace nccl_exporter::exporter {
namespace {

TEST(SnapshotFamiliesTest, AFunctionAppearsInAllSizeClassesOnceItWasUsed) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 8192, 5000);
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_EQ(scrape.Values(Metric::kCollectiveOperations).size(), size_t{kSizeClassCount});
  EXPECT_EQ(scrape.Value(Metric::kCollectiveOperations, "size=4096,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveOperations, "size=0,"), 0);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBytes, "size=4096,"), 8192);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveTimedOperations, "size=4096,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBusySeconds, "size=4096,"), 5e-6);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBusBytes, "size=4096,"), 14336);  // 2 * 7/8
}

TEST(SnapshotFamiliesTest, ACallWithoutOperationMakesAFunctionAppear) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.functions.Change(static_cast<size_t>(Function::kBroadcast)).calls = 3;
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_EQ(scrape.Value(Metric::kApiCalls, "function=Broadcast,"), 3);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveOperations, "collective=Broadcast,size=0,"), 0);
}

TEST(SnapshotFamiliesTest, AnIdleCommunicatorHasGaugesAndInfoOnly) {
  const ScrapedNode scrape(NodeOfOne(EmptyCommunicator(1, 0)));
  EXPECT_TRUE(scrape.Values(Metric::kApiCalls).empty());
  EXPECT_TRUE(scrape.Values(Metric::kSendOperations).empty());
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence), 0);
  EXPECT_EQ(scrape.Value(Metric::kRankInfo), 1);
}

TEST(SnapshotFamiliesTest, PointToPointIsSummedOverSizes) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kSend, 100, 1000);
  AddOperation(communicator, Function::kSend, 1 << 20, 3000);
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_EQ(scrape.Value(Metric::kSendOperations), 2);
  EXPECT_EQ(scrape.Value(Metric::kSendBytes), 1048676);
  EXPECT_EQ(scrape.Value(Metric::kSendTimedOperations), 2);
  EXPECT_EQ(scrape.Value(Metric::kSendBusySeconds), 4e-6);
  EXPECT_EQ(scrape.Value(Metric::kSendDuration), 4e-6);
  EXPECT_EQ(scrape.Value(Metric::kApiCalls, "function=Send,"), 2);
  EXPECT_TRUE(scrape.Values(Metric::kCollectiveOperations).empty());
  EXPECT_TRUE(scrape.Values(Metric::kRecvOperations).empty());
}

TEST(SnapshotFamiliesTest, HistogramsHoldTheSegmentsCountsAndSums) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  AddOperation(communicator, Function::kAllReduce, 512, 2000);
  const collector::FunctionSnapshot& counts =
      communicator.functions[static_cast<size_t>(Function::kAllReduce)];
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_THAT(scrape.Counts(Metric::kCollectiveDuration),
              testing::ElementsAreArray(counts.duration));
  EXPECT_THAT(scrape.Counts(Metric::kCollectiveBusBandwidth),
              testing::ElementsAreArray(counts.bandwidth));
  EXPECT_EQ(scrape.Value(Metric::kCollectiveDuration), 0.001002);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBusBandwidth),
            static_cast<double>(counts.bandwidth_sum_kib) * 1024);
  EXPECT_NE(counts.bandwidth_sum_kib, 0u);
}

MetricFilter WithDurationsBySize() {
  MetricFilter filter;
  filter.SplitDurations();
  return filter;
}

TEST(DurationsBySizeTest, HaveASeriesForEachSizeThatIsTimed) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  AddOperation(communicator, Function::kAllReduce, 512, 2000);
  AddOperation(communicator, Function::kAllReduce, 8192, 0);
  AddOperation(communicator, Function::kSend, 8192, 3000);
  const collector::NodeSnapshot node = NodeOfOne(communicator);
  const ScrapedNode split(node, kSeriesLimit, WithDurationsBySize());
  const auto durations = split.Values(Metric::kCollectiveDuration);
  EXPECT_EQ(durations.size(), 2u);
  EXPECT_EQ(split.Value(Metric::kCollectiveDuration, "collective=AllReduce,size=1048576,"), 0.001);
  EXPECT_EQ(split.Value(Metric::kCollectiveDuration, "collective=AllReduce,size=0,"), 2e-6);
  EXPECT_EQ(split.Value(Metric::kSendDuration, "size=4096,"), 3e-6);
  EXPECT_EQ(split.Values(Metric::kCollectiveBusBandwidth).size(), 1u);
  const ScrapedNode whole(node);
  EXPECT_EQ(whole.Values(Metric::kCollectiveDuration).size(), 1u);
  EXPECT_EQ(split.samples(), whole.samples() + 13) << "ten bounds, +Inf, sum and count";
}

TEST(DurationsBySizeTest, LeaveWhatHasNoSizesWithoutTheLabel) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 512, 2000);
  AddOperation(communicator, Function::kReduce, 512, 5000);
  communicator.functions.Change(static_cast<size_t>(Function::kReduce)).duration_by_size = {};
  const ScrapedNode scrape(NodeOfOne(communicator), kSeriesLimit, WithDurationsBySize());
  EXPECT_EQ(scrape.Values(Metric::kCollectiveDuration).size(), 2u);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveDuration, "collective=AllReduce,size=0,"), 2e-6);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveDuration, "collective=Reduce,"), 5e-6);
}

TEST(DurationsBySizeTest, AddUpWhereSomeOfThoseWithTheSameLabelsHaveNoSizes) {
  collector::CommunicatorSnapshot sized = EmptyCommunicator(1, 0), plain = EmptyCommunicator(1, 0);
  AddOperation(sized, Function::kAllReduce, 512, 2000);
  AddOperation(plain, Function::kAllReduce, 512, 3000);
  plain.functions.Change(static_cast<size_t>(Function::kAllReduce)).duration_by_size = {};
  const ScrapedNode scrape(NodeOf({ProcessOf(1, {sized}), ProcessOf(2, {plain})}), kSeriesLimit,
                           WithDurationsBySize());
  EXPECT_EQ(scrape.Values(Metric::kCollectiveDuration).size(), 2u);
  EXPECT_EQ(scrape.Value(Metric::kCollectiveDuration, "collective=AllReduce,size=0,"), 2e-6);
  double sum = 0;
  for (const auto& [labels, value] : scrape.Values(Metric::kCollectiveDuration)) sum += value;
  EXPECT_DOUBLE_EQ(sum, 5e-6);
}

TEST(DurationsBySizeTest, AreNotThoseOfCommunicatorsWithoutASlot) {
  collector::CommunicatorSnapshot overflow = Overflow();
  AddOperation(overflow, Function::kAllReduce, 512, 2000);
  AddOperation(overflow, Function::kAllReduce, 8192, 3000);
  const ScrapedNode scrape(NodeOfOne(overflow), kSeriesLimit, WithDurationsBySize());
  EXPECT_EQ(scrape.Values(Metric::kCollectiveDuration).size(), 1u);
}

TEST(DurationsBySizeTest, NeedTheLabel) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  AddOperation(communicator, Function::kAllReduce, 512, 2000);
  AddOperation(communicator, Function::kAllReduce, 8192, 3000);
  MetricFilter filter = WithDurationsBySize();
  filter.DropLabel("size");
  const ScrapedNode scrape(NodeOfOne(communicator), kSeriesLimit, filter);
  EXPECT_EQ(scrape.Values(Metric::kCollectiveDuration).size(), 1u);
}

TEST(SnapshotFamiliesTest, BusBytesAreAbsentWhereTheyCannotBeKnown) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.ranks = 0;
  AddOperation(communicator, Function::kAllReduce, 4 << 20,
               1000000);  // its factor depends on the ranks
  AddOperation(communicator, Function::kReduce, 4 << 20, 1000000);  // its factor is 1
  AddOperation(communicator, Function::kOther, 4 << 20, 1000000);   // it has none
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_EQ(scrape.Values(Metric::kCollectiveBusBytes).size(), size_t{kSizeClassCount});
  EXPECT_EQ(scrape.Value(Metric::kCollectiveBusBytes, "collective=Reduce,size=1048576,"), 4 << 20);
  EXPECT_EQ(scrape.Values(Metric::kCollectiveBusBandwidth).size(), 1u);
  EXPECT_EQ(scrape.Values(Metric::kCollectiveDuration).size(), 3u);
}

TEST(SnapshotFamiliesTest, ProgressIsAbsentWhereCompletionCannotBeSeen) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.started_sequence = 9;
  communicator.in_flight = {{.function = Function::kReduce, .start_realtime_ns = 5}};
  const ScrapedNode blind(NodeOfOne(communicator));
  EXPECT_EQ(blind.Value(Metric::kStartedSequence), 9);
  EXPECT_EQ(blind.Value(Metric::kCompletedSequence), std::nullopt);
  EXPECT_EQ(blind.Value(Metric::kInFlight), std::nullopt);
  EXPECT_EQ(blind.Value(Metric::kOldestInFlightStart), std::nullopt);
  EXPECT_EQ(blind.Value(Metric::kLastProgress), std::nullopt);

  communicator.unseen_operations = 2;
  EXPECT_EQ(blind.Value(Metric::kUnseenOperations), std::nullopt);
  EXPECT_EQ(ScrapedNode(NodeOfOne(communicator)).Value(Metric::kUnseenOperations), 2);
  communicator.unseen_operations = 0;

  communicator.completion_is_known = true;
  communicator.completed_sequence = 8;
  communicator.in_flight.front().start_realtime_ns = 1700000000250000000;
  communicator.last_progress_realtime_ns = 1700000000500000000;
  const ScrapedNode seeing(NodeOfOne(communicator));
  EXPECT_EQ(seeing.Value(Metric::kCompletedSequence), 8);
  EXPECT_EQ(seeing.Value(Metric::kInFlight), 1);
  EXPECT_EQ(seeing.Value(Metric::kOldestInFlightStart, "function=Reduce,"), 1700000000.25);
  EXPECT_EQ(seeing.Value(Metric::kLastProgress), 1700000000.5);
}

// A rank whose process is killed while it is in an operation.
TEST(SnapshotFamiliesTest, StalledCommunicatorsShowTheirStateAndOthersDoNot) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.started_sequence = 9;
  communicator.completed_sequence = 8;
  communicator.completion_is_known = true;
  communicator.in_flight = {
      {.function = Function::kReduce, .start_realtime_ns = 1700000000250000000}};
  communicator.ranks = 64;
  collector::ProcessSnapshot process = ProcessOf(1, {communicator});
  const auto book = [&](bool is_quiet) {
    Book of_process = BookOf(NodeOf({process}));
    of_process.rows[0].counts = ProcessCounts{.progress = 117};
    for (std::optional<RankCounts>& counts : of_process.rows[0].ranks) {
      counts.emplace().progress = 17;
      counts->is_quiet = is_quiet;
    }
    return of_process;
  };
  for (const Collect collect : {Collect::kWhole, Collect::kAlerts}) {
    const ScrapedNode busy(book(false), kSeriesLimit, {}, collect);
    EXPECT_EQ(busy.Value(Metric::kProcessHalted, "pid=1,"), 0);
    for (const Metric metric : {Metric::kStalledStartedSequence, Metric::kStalledCompletedSequence,
                                Metric::kStalledInFlight, Metric::kStalledOldestInFlightStart,
                                Metric::kStalledCommunicatorRanks, Metric::kStalledProgress,
                                Metric::kStalledProcessProgress})
      EXPECT_TRUE(busy.Values(metric).empty());
    const ScrapedNode stalled(book(true), kSeriesLimit, {}, collect);
    EXPECT_EQ(stalled.Value(Metric::kStalledStartedSequence, "rank=0,"), 9);
    EXPECT_EQ(stalled.Value(Metric::kStalledCompletedSequence, "rank=0,"), 8);
    EXPECT_EQ(stalled.Value(Metric::kStalledInFlight, "rank=0,"), 1);
    EXPECT_EQ(stalled.Value(Metric::kStalledOldestInFlightStart, "function=Reduce,"),
              1700000000.25);
    EXPECT_EQ(stalled.Value(Metric::kStalledCommunicatorRanks, "pid=1,"), 64);
    EXPECT_EQ(stalled.Value(Metric::kStalledProgress, "rank=0,"), 17);
    EXPECT_EQ(stalled.Value(Metric::kStalledProcessProgress), 117) << "an operation is in flight";
    process.communicators[0].in_flight.clear();
    const ScrapedNode idle(book(true), kSeriesLimit, {}, collect);
    EXPECT_TRUE(idle.Values(Metric::kStalledProcessProgress).empty()) << "nothing is unseen";
    process.communicators[0].in_flight = communicator.in_flight;
  }
  // Completion is not known.
  process.communicators[0].completion_is_known = false;
  const ScrapedNode blind(book(true));
  EXPECT_EQ(blind.Value(Metric::kStalledStartedSequence), 9);
  EXPECT_EQ(blind.Value(Metric::kStalledProcessProgress), 117);
  process.communicators.push_back(process.communicators[0]);
  EXPECT_EQ(ScrapedNode(book(true)).Value(Metric::kStalledProcessProgress), 117)
      << "of a row with two of its communicators once";
  process.communicators.pop_back();
  for (const Metric metric : {Metric::kStalledCompletedSequence, Metric::kStalledInFlight,
                              Metric::kStalledOldestInFlightStart})
    EXPECT_TRUE(blind.Values(metric).empty());
}

// A rank with all that is known of it.
collector::ProcessSnapshot FullyKnownProcess() {
  collector::CommunicatorSnapshot communicator = BusyCommunicator(1);
  communicator.numbers = {.global_rank = 3, .local_rank = 3, .world_size = 8};
  communicator.gpu_uuid = "MIG-1";
  communicator.pci_bus_id = "0000:3b:00.0";
  communicator.in_flight = {{.function = Function::kReduce, .start_realtime_ns = 1}};
  communicator.completion_is_known = true;
  communicator.arrivals.emplace().compared = 1;
  collector::ProcessSnapshot process = ProcessOf(1, {communicator});
  process.numbers = communicator.numbers;
  process.identity.clear();
  for (const IdentityVariable& variable : kIdentityVariables)
    process.identity.emplace_back(variable.name, "7");
  return process;
}

// The book of a node with that process alone.
Book FullyKnownBook(collector::ProcessSnapshot process) {
  Book book = BookOf(NodeOf({std::move(process)}));
  book.rows[0].counts = ProcessCounts{.progress = 1};
  RankCounts& counts = book.rows[0].ranks[0].emplace();
  counts.is_quiet = true;
  counts.node.emplace().is_lowest = true;
  counts.node->progress = 1;
  counts.steps.emplace().waits_ns[{Function::kAllReduce, 3}] = 1;
  return book;
}

void Ask(collector::ProcessSnapshot& process, const std::string& name, const std::string& value) {
  process.identity.insert(process.identity.begin(), {std::string(kUserLabelKey) + name, value});
}

TEST(SnapshotFamiliesTest, LabelsOfTheUsersOwnAreOnTheInfoOfARankOrOnEverySeries) {
  collector::ProcessSnapshot process = ProcessOf(1, {BusyCommunicator(1)});
  Ask(process, "run", "y z");
  Ask(process, "team", "x");
  // As only a forged segment has them.
  Ask(process, "rank", "99");
  Ask(process, "__name__", "up");
  Ask(process, "", "nothing");
  const auto lacking = [&](const MetricFilter& filter) {
    size_t count = 0;
    const ScrapedNode scrape(FullyKnownBook(process), kSeriesLimit, filter);
    for (const MetricRow& row : kMetrics) {
      for (const auto& [labels, value] : scrape.Values(row.id)) {
        EXPECT_EQ(labels.find("99"), std::string::npos) << labels;
        EXPECT_EQ(labels.find("__name__"), std::string::npos) << labels;
        const bool has_both = labels.find("team=x,run=y z,") != std::string::npos;
        const bool is_expected = filter.has_user_labels_everywhere()
                                     ? row.scope != LabelScope::kDaemon
                                     : row.id == Metric::kRankInfo;
        EXPECT_EQ(has_both, is_expected) << row.name << ' ' << labels;
        count += !has_both;
      }
    }
    return count;
  };
  MetricFilter everywhere;
  everywhere.PutUserLabelsEverywhere();
  EXPECT_GT(lacking({}), lacking(everywhere) + 20);
}

// So a name that gets a meaning here is refused from then on.
TEST(SnapshotFamiliesTest, NoLabelOfASeriesMayBeAskedFor) {
  const ScrapedNode scrape(ExampleBook());
  size_t names = 0;
  for (const MetricRow& row : kMetrics) {
    for (const auto& [labels, value] : scrape.Values(row.id)) {
      const std::regex label("(?:^|,)([a-zA-Z_]+)=");
      for (std::sregex_iterator i(labels.begin(), labels.end(), label), end; i != end; ++i, ++names)
        EXPECT_FALSE(IsUserLabelName((*i)[1].str())) << (*i)[1] << " of " << row.name;
    }
  }
  EXPECT_GT(names, 100u);
  for (const IdentityVariable& variable : kIdentityVariables)
    EXPECT_FALSE(IsUserLabelName(variable.label)) << variable.label;
}

// Regresses: a rank of torchrun under Slurm had 28 labels in the series that all hang alerts read,
// and 31 in the store, which stores refuse.
TEST(SnapshotFamiliesTest, SeriesHaveFewEnoughLabelsForStores) {
  constexpr long kAddedLater = 3;  // name, job, instance
  collector::ProcessSnapshot with_labels = FullyKnownProcess();
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) Ask(with_labels, name, "x");
  for (const collector::ProcessSnapshot& process : {FullyKnownProcess(), with_labels}) {
    const ScrapedNode scrape(FullyKnownBook(process));
    size_t families = 0;
    for (const MetricRow& row : kMetrics) {
      if (row.part != MetricPart::kAlerts) continue;
      const auto values = scrape.Values(row.id);
      families += !values.empty();
      for (const auto& [labels, value] : values) {
        EXPECT_LE(std::ranges::count(labels, ',') + kAddedLater,
                  row.id == Metric::kRankInfo ? 29 : 20)
            << row.name << ' ' << labels;
      }
    }
    EXPECT_GT(families, 15u);
  }
  collector::ProcessSnapshot in_slurm = FullyKnownProcess();
  std::erase_if(in_slurm.identity, [](const auto& pair) {
    return pair.first.starts_with("POD_") || pair.first == "CONTAINER_NAME";
  });
  EXPECT_EQ(ScrapedNode(FullyKnownBook(in_slurm))
                .Value(Metric::kRankInfo, "slurm_array_task_id=7,torchelastic_run_id=7,"),
            1)
      << "without pods there is room for these";
}

TEST(SnapshotFamiliesTest, AProcessIsHaltedWhileItIsStoppedAndAfterItsEnd) {
  collector::ProcessSnapshot process = ProcessOf(77, {});
  const auto halted = [&] {
    return ScrapedNode(NodeOf({process})).Value(Metric::kProcessHalted, "pid=77,uid=1000,");
  };
  EXPECT_EQ(halted(), 0);
  process.is_stopped = true;
  EXPECT_EQ(halted(), 1);
  process.is_stopped.reset();
  EXPECT_EQ(halted(), 0) << "the daemon does not see it in /proc";
  process.is_alive = false;
  EXPECT_EQ(halted(), 1);
}

TEST(SnapshotFamiliesTest, LossesThatAlertsReadAreOneSumOfEachKind) {
  collector::ProcessSnapshot process = ProcessOf(77, {});
  EXPECT_TRUE(ScrapedNode(NodeOf({process})).Values(Metric::kOperationsUnfollowed).empty());
  EXPECT_TRUE(ScrapedNode(NodeOf({process})).Values(Metric::kOperationsRejected).empty());
  for (const LossTraits& loss : kLosses) process.losses[static_cast<size_t>(loss.id)] = 1;
  const ScrapedNode scrape(NodeOf({process}));
  EXPECT_EQ(scrape.Value(Metric::kOperationsUnfollowed, "pid=77,"),
            scrape.Values(Metric::kEventsDropped).size() - 2);
  EXPECT_EQ(scrape.Value(Metric::kOperationsRejected, "pid=77,"),
            scrape.Values(Metric::kTimestampsRejected).size());
  process.losses = {};
  process.losses[static_cast<size_t>(Loss::kIncompleteAtFinalize)] = 1;
  process.losses[static_cast<size_t>(Loss::kCommunicatorDrifting)] = 1;
  EXPECT_TRUE(ScrapedNode(NodeOf({process})).Values(Metric::kOperationsUnfollowed).empty());
}

TEST(SnapshotFamiliesTest, AChainedPluginHasItsCostAndItsLabels) {
  collector::ProcessSnapshot process = ProcessOf(77, {BusyCommunicator(1)});
  const auto info = [&] { return ScrapedNode(NodeOf({process})).Values(Metric::kRankInfo); };
  EXPECT_TRUE(ScrapedNode(NodeOf({process})).Values(Metric::kProcessChainedCallbacks).empty());
  EXPECT_EQ(info().begin()->first.find("chained"), std::string::npos);
  process.chained = {.name = "Inspector"};
  process.chained_callbacks = 6400;
  process.chained_ns = 250'000;
  const auto events = [&] {
    const std::string labels = info().begin()->first;
    EXPECT_NE(labels.find("chained_plugin=Inspector,"), std::string::npos);
    const size_t begin = labels.find("chained_events=") + 15;
    return labels.substr(begin, labels.find(',', begin) - begin);
  };
  const ScrapedNode scrape(NodeOf({process}));
  EXPECT_EQ(scrape.Value(Metric::kProcessChainedCallbacks, "pid=77,"), 6400);
  EXPECT_EQ(scrape.Value(Metric::kProcessChainedSeconds, "pid=77,"), 0.00025);
  EXPECT_EQ(events(), "all");
  process.chained->lacks_kernel_events = true;
  EXPECT_EQ(events(), "no_kernel_events");
  process.chained->is_over_budget = true;
  EXPECT_EQ(events(), "none_over_budget");
}

TEST(SnapshotFamiliesTest, CommunicatorsWithoutIdentityWaitForIt) {
  collector::CommunicatorSnapshot communicator = BusyCommunicator(1);
  communicator.has_identity = false;
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_TRUE(scrape.Values(Metric::kApiCalls).empty());
  EXPECT_TRUE(scrape.Values(Metric::kRankInfo).empty());
}

TEST(SnapshotFamiliesTest, JobLabelsAreThoseKnown) {
  collector::ProcessSnapshot process = ProcessOf(1, {EmptyCommunicator(0xab, 2)});
  process.identity = {{"POD_NAME", "p"}, {"SLURM_JOB_ID", "7"}, {"CONTAINER_NAME", ""}};
  EXPECT_THAT(ScrapedNode(NodeOf({process})).Values(Metric::kStartedSequence),
              testing::ElementsAre(testing::Pair(
                  "comm=00000000000000ab,comm_name=,rank=2,gpu=2,uid=1000,nccl_job=7,pod=p,", 0)));
}

TEST(SnapshotFamiliesTest, AFinalizedCommunicatorHasNothingInFlight) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.started_sequence = 9;
  communicator.is_closed = true;
  const ScrapedNode scrape(NodeOfOne(communicator));
  EXPECT_EQ(scrape.Value(Metric::kInFlight), 0);
  EXPECT_EQ(scrape.Value(Metric::kCompletedSequence), std::nullopt);
}

TEST(SnapshotFamiliesTest, NumbersOfRanksAreThoseOfTheirCommunicator) {
  collector::ProcessSnapshot process = ProcessOf(1, {EmptyCommunicator(1, 4)});
  process.numbers.global_rank = 3;  // a later communicator, which is not served any more
  process.communicators[0].numbers = {.global_rank = 1, .local_rank = 1, .world_size = 8};
  const ScrapedNode known(NodeOf({process}));
  EXPECT_EQ(known.Value(Metric::kRankInfo, "world_size=8,"), 1);
  EXPECT_EQ(known.Value(Metric::kRankInfo, "local_rank=1,"), 1);
  EXPECT_EQ(known.Value(Metric::kProcessAlive, "global_rank=3,"), 1);
  EXPECT_EQ(known.Value(Metric::kStartedSequence, "rank=4,global_rank=1,gpu=4,uid=1000,"), 0);
  process.numbers = process.communicators[0].numbers = {};
  const ScrapedNode scrape(NodeOf({process}));
  EXPECT_EQ(scrape.Value(Metric::kRankInfo, "local_rank=,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kStartedSequence, "rank=4,gpu=4,uid=1000,"), 0);
  EXPECT_EQ(scrape.Value(Metric::kProcessAlive, "uid=1000,"), 1);
}

// Regresses: every key of a segment became a label, CLUSTER and ALERTNAME among them.
TEST(SnapshotFamiliesTest, RankInfoHasLabelsOfKnownVariablesAndOfNoOthers) {
  collector::ProcessSnapshot process = ProcessOf(1, {EmptyCommunicator(1, 0)});
  process.plugin_version = "1.2.3";
  process.identity = {{"NODE_NAME", "n"}, {"POD_UID", "u"},   {"HOSTNAME", "x1"}, {"JOB", "x2"},
                      {"CLUSTER", "x3"},  {"REGION", "x4"},   {"__META", "x5"},   {"EMPTY", ""},
                      {"SEVERITY", "x6"}, {"ALERTNAME", "x7"}};
  const auto values = ScrapedNode(NodeOf({process})).Values(Metric::kRankInfo);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_THAT(
      values.begin()->first,
      testing::EndsWith("timing_reason=default,plugin_version=1.2.3,adapter=mlx5_0,pod_uid=u,"));
}

TEST(SnapshotFamiliesTest, VariablesOfNcclAreOneSeriesOfTheProcess) {
  collector::ProcessSnapshot process = ProcessOf(1, {EmptyCommunicator(1, 0)});
  process.identity = {{"NODE_NAME", "n"},
                      {"NCCL_*", "2~1a2b3c4d"},
                      {"NCCL_ALGO", "Ring"},
                      {"NCCL_DEBUG", "\xFF"},
                      {"NCCL_EXPORTER_JOB", "j"}};
  const auto variables = [&] {
    const auto values = ScrapedNode(NodeOf({process})).Values(Metric::kProcessEnvironmentInfo);
    return values.size() == 1 ? values.begin()->first : "";
  };
  EXPECT_THAT(variables(),
              testing::HasSubstr("hostname=n,variables=NCCL_*=2~1a2b3c4d NCCL_ALGO=Ring "
                                 "NCCL_DEBUG=" +
                                 std::string(kReplacementCharacter) + ","));
  for (int i = 10; i < 40; ++i)
    process.identity.emplace_back("NCCL_" + std::to_string(i), std::string(95, 'x'));
  const std::string cut = variables();
  EXPECT_THAT(cut, testing::EndsWith(std::string(95, 'x') + ",")) << "after a whole variable";
  const size_t begin = cut.find("NCCL_*");
  EXPECT_LE(cut.size() - 1 - begin, kNcclVariablesLimitBytes);
  EXPECT_GT(cut.size() - 1 - begin, kNcclVariablesLimitBytes - 110);
  process.identity = {{"NCCL_EXPORTER_JOB", "j"}};
  EXPECT_EQ(variables(), "") << "an older plugin records none";
}

// The dead one's are not those of its successor, even if that has none.
TEST(SnapshotFamiliesTest, VariablesOfNcclAreThoseOfTheProcessThatBeganLast) {
  collector::ProcessSnapshot ended = ProcessOf(1, {EmptyCommunicator(1, 0)});
  ended.is_alive = false;
  ended.identity = {{"NCCL_*", "1~1a2b3c4d"}, {"NCCL_DEBUG", "INFO"}};
  collector::ProcessSnapshot later = ended;
  later.file.inode += 1;
  later.is_alive = true;
  later.start_monotonic_ns += 1;
  later.identity.clear();
  const auto values = [&] {
    return ScrapedNode(NodeOf({ended, later})).Values(Metric::kProcessEnvironmentInfo).size();
  };
  EXPECT_EQ(values(), 0u);
  later.identity = {{"NCCL_*", "0~00000000"}};
  EXPECT_EQ(values(), 1u);
}

// At most eight series of a process: 64 for a node of eight ranks.
TEST(SnapshotFamiliesTest, ASignalOfTheHostThatCannotBeReadHasNoSeries) {
  using collector::HostSignals;
  using Signal = std::optional<uint64_t> HostSignals::*;
  constexpr std::pair<Metric, Signal> kSignals[] = {
      {Metric::kProcessCpuWait, &HostSignals::cpu_wait_ns},
      {Metric::kProcessInvoluntarySwitches, &HostSignals::involuntary_switches},
      {Metric::kProcessProgressCpu, &HostSignals::progress_cpu_ns},
      {Metric::kProcessMajorFaults, &HostSignals::major_faults},
      {Metric::kProcessThrottled, &HostSignals::throttled_ns},
      {Metric::kProcessMemoryStall, &HostSignals::memory_stall_ns},
      {Metric::kProcessVerbsDevices, &HostSignals::verbs_devices}};
  static_assert(std::size(kSignals) + 1 <= 8);  // and the variables of NCCL
  collector::ProcessSnapshot process = ProcessOf(1, {EmptyCommunicator(1, 0)});
  process.host.emplace();
  for (const auto& [metric, signal] : kSignals) (*process.host).*signal = 0;
  const ScrapedNode all(NodeOf({process}));
  for (const auto& [metric, signal] : kSignals) {
    EXPECT_EQ(all.Values(metric).size(), 1u) << static_cast<int>(metric);
    (*process.host).*signal = std::nullopt;
    EXPECT_THAT(ScrapedNode(NodeOf({process})).Values(metric), testing::IsEmpty());
  }
}

// In Kubernetes the host name is the pod's.
TEST(SnapshotFamiliesTest, RankInfoHasTheNodeThatTheEnvironmentNames) {
  collector::ProcessSnapshot process = ProcessOf(1, {EmptyCommunicator(1, 0)});
  process.host_name = "trainer-0";
  EXPECT_EQ(ScrapedNode(NodeOf({process})).Value(Metric::kRankInfo, "hostname=trainer-0,"), 1);
  process.identity = {{"NODE_NAME", "gpu-node-42"}};
  EXPECT_EQ(ScrapedNode(NodeOf({process})).Value(Metric::kRankInfo, "hostname=gpu-node-42,"), 1);
}

TEST(SnapshotFamiliesTest, LabelValuesAreValidAndBounded) {
  collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
  communicator.name = std::string(kLabelValueLimitBytes, 'n') + "tail";
  collector::ProcessSnapshot process = ProcessOf(1, {communicator});
  process.identity = {{"POD_NAME", "\xFF"}};
  EXPECT_EQ(
      ScrapedNode(NodeOf({process}))
          .Value(Metric::kStartedSequence, "comm_name=" + std::string(kLabelValueLimitBytes, 'n') +
                                               ",rank=0,gpu=0,uid=1000,pod=\xEF\xBF\xBD,"),
      0);
}

TEST(SnapshotFamiliesTest, LossesShowAllReasonsOfTheirKindFromZero) {
  collector::ProcessSnapshot process = ProcessOf(77, {});
  process.numbers.global_rank = 3;
  process.losses[static_cast<size_t>(Loss::kStaleHandle)] = 4;
  const ScrapedNode scrape(NodeOf({process}));
  EXPECT_EQ(
      scrape.Value(Metric::kEventsUnmatched, "pid=77,global_rank=3,uid=1000,reason=stale_handle,"),
      4);
  EXPECT_EQ(scrape.Value(Metric::kEventsDropped, "reason=in_flight_full,"), 0);
  EXPECT_EQ(scrape.Values(Metric::kEventsDropped).size() +
                scrape.Values(Metric::kEventsUnmatched).size() +
                scrape.Values(Metric::kTimestampsRejected).size(),
            size_t{kLossCount});
}

TEST(SnapshotFamiliesTest, AProcessIsAliveUntilItHasEnded) {
  collector::ProcessSnapshot process = ProcessOf(77, {});
  process.is_alive = true;
  EXPECT_EQ(ScrapedNode(NodeOf({process})).Value(Metric::kProcessAlive, "pid=77,uid=1000,"), 1);
  process.is_alive = false;
  EXPECT_EQ(ScrapedNode(NodeOf({process})).Value(Metric::kProcessAlive, "pid=77,uid=1000,"), 0);
}

TEST(SnapshotFamiliesTest, AProcessIsStoppedOrNotWhereThatIsKnown) {
  collector::ProcessSnapshot process = ProcessOf(77, {});
  process.is_stopped.reset();
  EXPECT_TRUE(ScrapedNode(NodeOf({process})).Values(Metric::kProcessStopped).empty());
  process.is_stopped = false;
  EXPECT_EQ(ScrapedNode(NodeOf({process})).Value(Metric::kProcessStopped, "pid=77,uid=1000,"), 0);
  process.is_stopped = true;
  EXPECT_EQ(ScrapedNode(NodeOf({process})).Value(Metric::kProcessStopped, "pid=77,uid=1000,"), 1);
}

TEST(SnapshotFamiliesTest, SegmentErrorsShowAllReasonsFromZero) {
  collector::NodeSnapshot snapshot;
  snapshot.segments.starting = 2;
  snapshot.segment_errors[static_cast<size_t>(collector::SegmentError::kTruncated)] = 6;
  const ScrapedNode scrape(snapshot);
  EXPECT_EQ(scrape.Value(Metric::kSegments, "state=starting,"), 2);
  EXPECT_EQ(scrape.Values(Metric::kSegments).size(), 4u);
  EXPECT_EQ(scrape.Value(Metric::kSegmentReadErrors, "reason=truncated,"), 6);
  EXPECT_EQ(scrape.Values(Metric::kSegmentReadErrors).size(), collector::kSegmentErrors.size());
}

TEST(SnapshotFamiliesTest, SegmentErrorsNameTheOwnersOfTheFiles) {
  collector::NodeSnapshot snapshot;
  snapshot.segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                                .uid = std::nullopt,
                                .count = 2,
                                .file = "",
                                .detail = "",
                                .present = 1},
                               {.error = collector::SegmentError::kTooManySegments,
                                .uid = 1001,
                                .count = 3,
                                .file = "",
                                .detail = ""}};
  const ScrapedNode scrape(snapshot);
  EXPECT_THAT(
      scrape.Values(Metric::kUserSegmentErrors),
      testing::UnorderedElementsAre(testing::Pair("uid=other,reason=bad_magic,", 2),
                                    testing::Pair("uid=1001,reason=too_many_segments,", 3)));
  EXPECT_THAT(
      scrape.Values(Metric::kUserSegmentsUnusable),
      testing::UnorderedElementsAre(testing::Pair("uid=other,reason=bad_magic,", 1),
                                    testing::Pair("uid=1001,reason=too_many_segments,", 0)));
}

TEST(SnapshotFamiliesTest, TheExampleHasNoSeriesTwice) {
  const ScrapedNode scrape(ExampleBook());
  for (size_t i = 0; i < kMetricCount; ++i) scrape.Values(static_cast<Metric>(i));
}

}  // namespace
}  // namespace nccl_exporter::exporter
