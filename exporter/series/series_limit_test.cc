// SPDX-License-Identifier: Apache-2.0
// Nodes with more series than the limit: what they lose, in which order, and whose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/testing/scraped_node.h"

namespace nccl_exporter::exporter {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
constexpr size_t kDetailOfProcess = kLossCount + 2;  // losses, alive, stopped

collector::ProcessSnapshot ProcessWith(uint64_t pid, uint64_t communicators) {
  std::vector<collector::CommunicatorSnapshot> busy;
  for (uint64_t id = 1; id <= communicators; ++id) busy.push_back(BusyCommunicator(pid * 100 + id));
  return ProcessOf(pid, busy);
}

// Samples that a busy communicator adds to a scrape.
struct BusyNeed {
  size_t all, alerts, detail;
  size_t none;                // samples of a scrape without a communicator
  size_t room_of_alerts = 0;  // with the series that it would have when it stalls
  size_t room_of_detail = 0;  // with the start of an operation in flight

  BusyNeed() {
    const collector::NodeSnapshot idle = NodeOf({ProcessOf(1, {})});
    const collector::NodeSnapshot busy = NodeOf({ProcessWith(1, 1)});
    none = ScrapedNode(idle).samples();
    all = ScrapedNode(busy).samples() - none;
    const auto alerts_of = [](const collector::NodeSnapshot& node) {
      return ScrapedNode(node, kNoLimit, {}, Collect::kAlerts).samples();
    };
    alerts = alerts_of(busy) - alerts_of(idle);
    detail = all - alerts;
    room_of_alerts = alerts + 7;
    room_of_detail = detail + 1;
  }

  // The limit that leaves `samples` for communicators with a name, beside the series of a process
  // with communicators that have none.
  size_t LimitFor(size_t samples) const { return none + 1 + samples + kSeriesForOthers; }
  // LimitFor() without the detail of the one process, which is lost before alert series.
  size_t LimitForAlerts(size_t samples) const { return LimitFor(samples) - kDetailOfProcess; }
};

constexpr size_t kTen = 10;

// Regression: the 4th communicator and all later ones of this node were folded.
TEST(SeriesLimitTest, TheOldestCommunicatorsAreCompleteAndOthersHaveTheirAlertSeries) {
  const BusyNeed need;
  const size_t limit = need.LimitFor(kTen * need.room_of_alerts + 3 * need.room_of_detail);
  const collector::NodeSnapshot node = NodeOf({ProcessWith(1, kTen)});
  const ScrapedNode whole(node, kNoLimit), scrape(node, limit);
  EXPECT_LE(scrape.samples(), limit);
  EXPECT_EQ(scrape.drops().by_user.at(1000), (SeriesDrops::Counts{7 * need.detail, 0, 0, 0}));
  for (const MetricRow& row : kMetrics) {
    std::map<std::string, double> expected = whole.Values(row.id);
    if (row.scope == LabelScope::kCommunicator && row.part == MetricPart::kDetail)
      std::erase_if(expected,
                    [](const auto& series) { return series.first >= "comm=0000000000000068,"; });
    EXPECT_EQ(scrape.Values(row.id), expected) << row.name;
  }
}

TEST(SeriesLimitTest, AlertSeriesStayWhereThereIsNoRoomForDetail) {
  const BusyNeed need;
  const size_t limit = need.LimitFor(kTen * need.room_of_alerts);
  const ScrapedNode scrape(NodeOf({ProcessWith(1, kTen)}), limit);
  EXPECT_LE(scrape.samples(), limit);
  EXPECT_EQ(scrape.drops().by_user.at(1000), (SeriesDrops::Counts{kTen * need.detail, 0, 0, 0}));
  EXPECT_EQ(scrape.Values(Metric::kRankInfo).size(), kTen);
  EXPECT_EQ(scrape.Values(Metric::kRankPointToPoint).size(), kTen);
  EXPECT_TRUE(scrape.Values(Metric::kSendBytes).empty());
}

TEST(SeriesLimitTest, CommunicatorsFoldLast) {
  const BusyNeed need;
  const size_t limit = need.LimitForAlerts(6 * need.room_of_alerts);
  collector::NodeSnapshot node = NodeOf({ProcessWith(1, kTen)});
  SeriesMemory memory;
  ScrapedNode(node, {}, memory, limit);
  for (collector::CommunicatorSnapshot& communicator : node.processes[0].communicators)
    AddOperation(communicator, Function::kAllReduce, 4 << 20, 1000000);
  const ScrapedNode scrape(node, {}, memory, limit);
  EXPECT_LE(scrape.samples(), limit);
  EXPECT_EQ(scrape.drops().by_user.at(1000),
            (SeriesDrops::Counts{6 * need.detail + kDetailOfProcess, 4 * need.all, 0, 0}));
  EXPECT_EQ(scrape.Values(Metric::kRankInfo).size(), 6u);
  EXPECT_EQ(scrape.Value(Metric::kApiCalls,
                         "comm=other,comm_name=,rank=,gpu=,uid=1000,function=AllReduce,"),
            4);
  EXPECT_EQ(
      scrape.Value(Metric::kCollectiveBusBytes,
                   "comm=other,comm_name=,rank=,gpu=,uid=1000,collective=AllReduce,size=1048576,"),
      4 * (4 << 20) * 1.75);
}

// Regression: 85 of 320 had alert series.
TEST(SeriesLimitTest, AlertSeriesOf320CommunicatorsAreAllThere) {
  const auto node = NodeOfShape({.ranks = 8, .communicators = 40});
  const ScrapedNode whole(*node, kNoLimit);
  const ScrapedNode capped(*node);
  EXPECT_EQ(capped.Values(Metric::kRankInfo).size(), 320u);
  for (const MetricRow& row : kMetrics) {
    if (row.part != MetricPart::kAlerts) continue;
    EXPECT_EQ(capped.Values(row.id), whole.Values(row.id)) << row.name;
  }
  EXPECT_LE(capped.samples(), size_t{kSeriesLimit});
  uint64_t lost = 0;
  for (const CodeRow<SeriesLoss>& row : kSeriesLosses) lost += capped.drops().Of(row.id);
  EXPECT_EQ(capped.samples() + lost, whole.samples());
  EXPECT_EQ(capped.drops().Of(SeriesLoss::kFolded), 0u);
}

// Communicators that have detail.
std::set<std::string> Detailed(const ScrapedNode& scrape) {
  std::set<std::string> communicators;
  for (const auto& [labels, sum] : scrape.Values(Metric::kSendDuration))
    communicators.insert(labels.substr(0, labels.find(',')));
  return communicators;
}

// Regression: the order was that of the slots, and the plugin uses the lowest free one again.
TEST(SeriesLimitTest, AYoungCommunicatorTakesNothingFromAnOlderOneWhateverItsSlot) {
  const BusyNeed need;
  collector::ProcessSnapshot process = ProcessWith(1, kTen);
  process.communicators[0].created_realtime_ns += 2;  // comm 65
  process.communicators[4].created_realtime_ns += 1;  // comm 69
  const ScrapedNode scrape(NodeOf({process}),
                           need.LimitFor(kTen * need.room_of_alerts + 3 * need.room_of_detail));
  EXPECT_THAT(Detailed(scrape),
              testing::ElementsAre("comm=0000000000000066", "comm=0000000000000067",
                                   "comm=0000000000000068"));
  const ScrapedNode folded(NodeOf({process}), need.LimitForAlerts(9 * need.room_of_alerts));
  EXPECT_EQ(folded.Values(Metric::kRankInfo).size(), 9u);
  EXPECT_EQ(folded.Value(Metric::kRankInfo, "comm=0000000000000065,"), std::nullopt);
}

// The worlds of all processes are older than what the first of them makes later.
TEST(SeriesLimitTest, TheOldestCommunicatorsOfAllProcessesOfAUserComeFirst) {
  const BusyNeed need;
  std::vector<collector::ProcessSnapshot> processes{ProcessWith(1, 4), ProcessWith(2, 4)};
  for (collector::ProcessSnapshot& process : processes) {
    for (size_t i = 0; i < process.communicators.size(); ++i)
      process.communicators[i].created_realtime_ns += static_cast<int64_t>(i);
  }
  const size_t limit = need.LimitFor(8 * need.room_of_alerts + 2 * need.room_of_detail) +
                       kDetailOfProcess + 2;  // of the second
  EXPECT_THAT(Detailed(ScrapedNode(NodeOf(processes), limit)),
              testing::ElementsAre("comm=0000000000000065", "comm=00000000000000c9"));
}

// Regression: communicators of ended jobs, which are older, kept their series, and those of a job
// that runs were folded.
TEST(SeriesLimitTest, CommunicatorsInUseComeBeforeThoseOfTheDeadAndFinalizedOnes) {
  const BusyNeed need;
  std::vector<collector::ProcessSnapshot> processes{ProcessWith(1, 3), ProcessWith(2, 3),
                                                    ProcessWith(3, 3)};
  processes[0].is_alive = processes[1].is_alive = false;
  for (collector::CommunicatorSnapshot& communicator : processes[0].communicators)
    communicator.is_closed = true;
  for (collector::CommunicatorSnapshot& communicator : processes[2].communicators)
    communicator.created_realtime_ns += 5;
  const auto served = [&](size_t communicators) {
    const ScrapedNode scrape(NodeOf(processes),
                             need.LimitForAlerts(communicators * need.room_of_alerts) + 4);
    std::map<std::string, size_t> counts;
    for (const auto& [labels, value] : scrape.Values(Metric::kRankInfo))
      ++counts[labels.substr(0, labels.find(',') - 2)];
    for (const auto& [labels, value] : scrape.Values(Metric::kProcessUnserved))
      counts["unserved"] += static_cast<size_t>(value);
    return counts;
  };
  using Counts = std::map<std::string, size_t>;
  const std::string live = "comm=00000000000001", dead = "comm=00000000000000";
  EXPECT_EQ(served(2), (Counts{{live, 2}, {"unserved", 1}}));
  EXPECT_EQ(served(3), (Counts{{live, 3}}));
  EXPECT_EQ(served(5), (Counts{{live, 3}, {dead, 2}}));
}

// Communicators that the collector had no room for have no series, and are not missing.
TEST(SeriesLimitTest, AProcessSaysHowManyOfItsCommunicatorsHaveNoSeries) {
  collector::ProcessSnapshot process = ProcessWith(1, 1);
  EXPECT_TRUE(ScrapedNode(NodeOf({process})).Values(Metric::kProcessUnserved).empty());
  process.unread_in_use = 3;
  process.unread_finalized = 5;
  const ScrapedNode scrape(NodeOf({process}));
  EXPECT_EQ(scrape.Value(Metric::kProcessUnserved), 3);
  EXPECT_EQ(scrape.Value(Metric::kUnreadCommunicators, "state=in_use,"), 3);
  EXPECT_EQ(scrape.Value(Metric::kUnreadCommunicators, "state=finalized,"), 5);
  EXPECT_EQ(scrape.Value(Metric::kUnreadCommunicators, "state=ended,"), 0);
}

TEST(SeriesLimitTest, OperationsInFlightChangeNoOthersSeries) {
  const BusyNeed need;
  const size_t limit = need.LimitFor(kTen * need.room_of_alerts + 3 * need.room_of_detail);
  collector::NodeSnapshot idle = NodeOf({ProcessWith(1, kTen)}), in_flight = idle;
  for (collector::NodeSnapshot* const node : {&idle, &in_flight}) {
    for (collector::CommunicatorSnapshot& one : node->processes[0].communicators)
      one.completion_is_known = true;
  }
  for (collector::CommunicatorSnapshot& one : in_flight.processes[0].communicators)
    one.in_flight.push_back({.function = Function::kAllReduce, .start_realtime_ns = 1});
  SeriesMemory memory;
  const std::set<std::string> first = Detailed(ScrapedNode(idle, {}, memory, limit));
  EXPECT_FALSE(first.empty());
  for (int i = 0; i < 3; ++i) {
    const ScrapedNode scrape(in_flight, {}, memory, limit);
    EXPECT_LE(scrape.samples(), limit);
    EXPECT_EQ(Detailed(scrape), first);
    EXPECT_EQ(Detailed(ScrapedNode(idle, {}, memory, limit)), first);
  }
}

// A hang comes and goes: all communicators stall, and none loses or gets back anything.
TEST(SeriesLimitTest, StalledCommunicatorsChangeNoOthersSeries) {
  const BusyNeed need;
  collector::NodeSnapshot node_of_ten = NodeOf({ProcessWith(1, kTen)});
  for (collector::CommunicatorSnapshot& one : node_of_ten.processes[0].communicators)
    one.completion_is_known = true;
  Book busy = BookOf(node_of_ten), stalled = busy;
  for (Book* const book : {&busy, &stalled}) {
    for (std::optional<RankCounts>& counts : book->rows[0].ranks)
      counts.emplace().is_quiet = book == &stalled;
  }
  for (const size_t room : {6 * need.room_of_alerts, kTen * need.room_of_alerts + 3 * need.all,
                            kTen * (need.all + 2)}) {
    const size_t limit = need.LimitFor(room);
    SeriesMemory memory;
    const ScrapedNode first(busy, {}, memory, limit);
    for (int i = 0; i < 3; ++i) {
      for (const Book* const node : {&stalled, &busy}) {
        const ScrapedNode scrape(*node, {}, memory, limit);
        EXPECT_LE(scrape.samples(), limit);
        EXPECT_EQ(Detailed(scrape), Detailed(first)) << room;
        EXPECT_EQ(scrape.Values(Metric::kRankInfo), first.Values(Metric::kRankInfo)) << room;
      }
    }
  }
}

TEST(SeriesLimitTest, LostDetailComesBackOnceThereIsRoomToSpare) {
  const BusyNeed need;
  const size_t limit = need.LimitFor(kTen * need.room_of_alerts + 3 * need.room_of_detail);
  const collector::NodeSnapshot calm = NodeOf({ProcessWith(1, kTen)});
  collector::NodeSnapshot more = calm;
  more.processes[0].communicators[0].unseen_operations = 1;  // one series more
  SeriesMemory memory;
  EXPECT_EQ(Detailed(ScrapedNode(calm, {}, memory, limit)).size(), 3u);
  EXPECT_EQ(Detailed(ScrapedNode(more, {}, memory, limit)).size(), 2u);
  EXPECT_EQ(Detailed(ScrapedNode(calm, {}, memory, limit)).size(), 2u) << "or it would flap";
  std::vector<collector::CommunicatorSnapshot>& rest = more.processes[0].communicators;
  rest = {rest[1], rest[2]};  // the second has lost its detail
  EXPECT_EQ(Detailed(ScrapedNode(more, {}, memory, limit)).size(), 2u);
}

// The user with few communicators started last.
TEST(SeriesLimitTest, NoUserLosesSeriesBecauseOfAnother) {
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t pid = 1; pid <= 3; ++pid) {
    processes.push_back(ProcessWith(pid, 8));
    processes.back().uid = 1001;
  }
  processes.push_back(ProcessWith(4, 2));
  processes.back().uid = 1002;
  const BusyNeed need;
  for (const size_t limit : {ScrapedNode(NodeOf(processes), kNoLimit).samples() / 2,
                             need.LimitFor(20 * need.room_of_alerts + 5 * need.all)}) {
    const ScrapedNode capped(NodeOf(processes), limit);
    EXPECT_LE(capped.samples(), limit);
    EXPECT_TRUE(capped.drops().by_user.contains(1001));
    EXPECT_FALSE(capped.drops().by_user.contains(1002));
    EXPECT_NE(capped.Value(Metric::kSendDuration, "comm=0000000000000191,"), std::nullopt);
    EXPECT_NE(capped.Value(Metric::kSendDuration, "comm=0000000000000192,"), std::nullopt);
    EXPECT_EQ(capped.Value(Metric::kProcessAlive, "pid=4,"), 1);
  }
}

// Regression: alert series of one user took the room of another's detail.
TEST(SeriesLimitTest, AUserWhoFitsInAnEqualPartIsServedWholeWhateverOthersHave) {
  const BusyNeed need;
  const size_t alerts_of_process = 2;  // halted, unserved
  const size_t part =
      alerts_of_process + kDetailOfProcess + kTen * (need.room_of_alerts + need.room_of_detail);
  const size_t of_node = need.none - kDetailOfProcess - 1;
  const auto served = [&](std::vector<collector::ProcessSnapshot> others, size_t users) {
    others.push_back(ProcessWith(9, kTen));
    const collector::NodeSnapshot node = NodeOf(others);
    const size_t limit = of_node + users * part + kSeriesForOthers;
    const ScrapedNode scrape(node, limit);
    EXPECT_LE(scrape.samples(), limit);
    EXPECT_TRUE(scrape.drops().by_user.contains(1001));
    EXPECT_TRUE(Detailed(scrape).contains("comm=000000000000038e")) << "the youngest";
    return !scrape.drops().by_user.contains(1000);
  };
  const auto of_user = [](uint64_t uid, uint64_t pid, uint64_t communicators) {
    collector::ProcessSnapshot process = ProcessWith(pid, communicators);
    process.uid = uid;
    return process;
  };
  EXPECT_TRUE(served({of_user(1001, 1, 90)}, 2));
  EXPECT_TRUE(served({of_user(1001, 1, 90), of_user(1002, 2, 60)}, 3));
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t pid = 10; pid < 210; ++pid) processes.push_back(of_user(1001, pid, 0));
  EXPECT_TRUE(served(processes, 2)) << "each may have a series more";
}

TEST(SeriesLimitTest, WhatFitsNowhereIsLeftOutAndCounted) {
  constexpr size_t kJobs = 6;
  constexpr size_t kGaugesAndInfos = 3;
  constexpr size_t kSends = 1;  // of the alert series: absent before the first
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t job = 1; job <= kJobs; ++job) {
    processes.push_back(ProcessOf(job, {}));
    processes.back().identity = {{"SLURM_JOB_ID", std::to_string(job)}};
  }
  const size_t without_communicators = ScrapedNode(NodeOf(processes)).samples();
  for (collector::ProcessSnapshot& process : processes)
    process.communicators = {BusyCommunicator(process.pid)};

  // Room for the alert series of one communicator and, in what is kept for them, one comm="other".
  // Each process has a series more, where its communicators have none.
  const BusyNeed need;
  const size_t limit = without_communicators - kJobs * (kDetailOfProcess - 1) +
                       need.room_of_alerts + kSeriesForOthers;
  const ScrapedNode scrape(NodeOf(processes), limit);
  EXPECT_LE(scrape.samples(), limit);
  EXPECT_EQ(scrape.Value(Metric::kRankInfo, "nccl_job=1,"), 1);
  EXPECT_EQ(scrape.Value(Metric::kApiCalls,
                         "comm=other,comm_name=,rank=,gpu=,uid=1000,nccl_job=2,function=Send,"),
            0);
  EXPECT_EQ(scrape.Values(Metric::kApiCalls).size(), size_t{kFunctionCount});
  EXPECT_EQ(scrape.drops().Of(SeriesLoss::kFolded), (kJobs - 1) * need.all);
  EXPECT_EQ(scrape.drops().Of(SeriesLoss::kLeftOut),
            (kJobs - 2) * (need.all - kGaugesAndInfos - kSends));
}

TEST(SeriesLimitTest, ProcessesLoseTheirDetailFirstAndAreThenLeftOut) {
  std::vector<collector::ProcessSnapshot> processes;
  for (uint64_t pid = 1; pid <= 100; ++pid) processes.push_back(ProcessOf(pid, {}));
  constexpr size_t kLimit = 1000;
  const ScrapedNode scrape(NodeOf(processes), kLimit);
  EXPECT_LE(scrape.samples(), kLimit);
  const uint64_t left_out = scrape.drops().Of(SeriesLoss::kLeftOut);
  EXPECT_EQ(left_out, 0u) << "their alert series fit";
  EXPECT_EQ(scrape.Values(Metric::kProcessHalted).size(), 100u);
  const uint64_t lost = scrape.drops().Of(SeriesLoss::kDetail);
  EXPECT_EQ(lost % kDetailOfProcess, 0u);
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(scrape.Values(Metric::kProcessAlive).size(), 100 - lost / kDetailOfProcess);
  constexpr size_t kLessLimit = kSeriesForOthers + 60;
  const ScrapedNode less(NodeOf(processes), kLessLimit);
  EXPECT_LE(less.samples(), kLessLimit);
  EXPECT_EQ(less.drops().Of(SeriesLoss::kLeftOut) % (kDetailOfProcess + 1), 0u);
  EXPECT_GT(less.drops().Of(SeriesLoss::kLeftOut), 0u);
  for (uint64_t pid = 101; pid <= 1000; ++pid) processes.push_back(ProcessOf(pid, {}));
  for (collector::ProcessSnapshot& process : processes) process.unread_in_use = 1;
  EXPECT_LE(ScrapedNode(NodeOf(processes), kLessLimit).samples(), kLessLimit);
}

collector::NodeSnapshot ChurnedNode(uint64_t scrape, uint64_t communicators, double minutes) {
  collector::NodeSnapshot node = NodeOf({ProcessWith(1, 0)});
  for (uint64_t i = 0; i < communicators; ++i) {
    node.processes[0].communicators.push_back(BusyCommunicator(scrape * 1000 + i + 1));
    node.processes[0].communicators.back().slot = static_cast<uint32_t>(i);
  }
  node.taken_realtime_ns = 1'700'000'000'000'000'000 + static_cast<int64_t>(minutes * 60e9);
  return node;
}

// Regression: one process that changed the ids of its communicators brought 17,500 new series with
// each scrape.
TEST(NewSeriesTest, CommunicatorsThatAreAlwaysNewShareABudgetOverTime) {
  SeriesMemory memory({}, {.at_once = 30, .per_minute = 6});
  std::set<std::string> seen;
  uint64_t refused = 0;
  for (uint64_t number = 0; number < 20; ++number) {
    const ScrapedNode scrape(ChurnedNode(number, 10, 0), {}, memory, kNoLimit);
    for (const auto& [labels, value] : scrape.Values(Metric::kSendBytes)) seen.insert(labels);
    refused += scrape.drops().Of(SeriesLoss::kNew);
  }
  // Their ranks are not missing: they have no series of their own.
  const ScrapedNode last(ChurnedNode(20, 10, 0), {}, memory, kNoLimit);
  EXPECT_EQ(last.Value(Metric::kProcessUnserved), 10);
  EXPECT_EQ(seen.size(), 28u + 1) << "30 at once, of which the process and comm=other take two";
  EXPECT_EQ(refused, 200u - 28);
  const ScrapedNode later(ChurnedNode(21, 10, 1), {}, memory, kNoLimit);
  EXPECT_EQ(later.drops().Of(SeriesLoss::kNew), 10u - 6);
  const ScrapedNode same(ChurnedNode(21, 10, 1), {}, memory, kNoLimit);
  EXPECT_EQ(same.Values(Metric::kSendBytes).size(), 6u + 1) << "those that have series keep them";
}

TEST(NewSeriesTest, OneUserTakesNothingOfAnothers) {
  SeriesMemory memory({}, {.at_once = 12, .per_minute = 1});
  collector::NodeSnapshot node = ChurnedNode(1, 100, 0);
  node.processes.push_back(ProcessWith(2, 10));
  node.processes[1].uid = 1001;
  const ScrapedNode scrape(node, {}, memory, kNoLimit);
  EXPECT_EQ(scrape.drops().by_user.size(), 1u);
  EXPECT_EQ(scrape.drops().by_user.begin()->first, node.processes[0].uid);
}

TEST(NewSeriesTest, ProcessesThatAreAlwaysNewAreLeftOut) {
  SeriesMemory memory({}, {.at_once = 10, .per_minute = 0});
  std::set<std::string> seen;
  for (uint64_t pid = 1; pid <= 100; ++pid) {
    const ScrapedNode scrape(NodeOf({ProcessOf(pid, {})}), {}, memory, kNoLimit);
    for (const auto& [labels, value] : scrape.Values(Metric::kProcessAlive)) seen.insert(labels);
  }
  EXPECT_EQ(seen.size(), 9u) << "one of ten is comm=other of all of them";
}

// 16 ranks that make 300 communicators each before the first scrape.
TEST(NewSeriesTest, TheStartOfALargeJobIsServed) {
  std::vector<collector::ProcessSnapshot> ranks;
  for (uint64_t pid = 1; pid <= 16; ++pid) {
    std::vector<collector::CommunicatorSnapshot> communicators;
    for (uint64_t id = 1; id <= 300; ++id)
      communicators.push_back(EmptyCommunicator(pid * 1000 + id, 0));
    ranks.push_back(ProcessOf(pid, std::move(communicators)));
  }
  EXPECT_EQ(ScrapedNode(NodeOf(ranks), kNoLimit).drops().Of(SeriesLoss::kNew), 0u);
}

// Names of 128 bytes in each label, which a page would hold in each of 20,000 lines.
TEST(SeriesLimitTest, LongLabelsTakeMoreOfTheLimit) {
  collector::ProcessSnapshot process = ProcessWith(1, 40);
  const auto page_of = [&] {
    const ScrapedNode scrape(NodeOf({process}), 4000);
    return scrape.Values(Metric::kSendBytes).size();
  };
  const size_t with_short_names = page_of();
  for (const char* const key : {"SLURM_JOB_ID", "POD_NAMESPACE", "POD_NAME", "CONTAINER_NAME"})
    process.identity.emplace_back(key, std::string(120, 'n'));
  for (collector::CommunicatorSnapshot& communicator : process.communicators)
    communicator.name = std::string(120, 'c');
  EXPECT_LE(page_of(), (with_short_names + 1) / 2 + 1);
}

TEST(AlertSeriesTest, AreTheSameAloneAndInTheWhole) {
  MetricFilter filter;
  filter.Disable("nccl_node_progress_total");
  const ScrapedNode whole(ExampleBook(), kSeriesLimit, filter);
  const ScrapedNode alone(ExampleBook(), kSeriesLimit, filter, Collect::kAlerts);
  for (const MetricRow& row : kMetrics) {
    const bool is_alert = row.part == MetricPart::kAlerts;
    EXPECT_EQ(alone.Values(row.id),
              is_alert ? whole.Values(row.id) : (std::map<std::string, double>{}))
        << row.name;
  }
  EXPECT_FALSE(alone.Values(Metric::kRankInfo).empty());
  EXPECT_TRUE(alone.Values(Metric::kNodeProgress).empty()) << "it is disabled";
}

// A member's last counts in one kind of scrape are not those in the other.
TEST(AlertSeriesTest, SumsOverMembersThatGoDecreaseInNoKindOfScrape) {
  const auto sends = [](uint64_t gone, uint64_t stays) {
    std::vector<collector::ProcessSnapshot> processes;
    for (const uint64_t count : {gone, stays}) {
      collector::CommunicatorSnapshot communicator = EmptyCommunicator(1, 0);
      for (uint64_t i = 0; i < count; ++i) AddOperation(communicator, Function::kSend, 100, 1000);
      if (count != 0) processes.push_back(ProcessOf(1, {communicator}));
      if (count != 0) processes.back().file.inode = count == stays ? 2 : 1;
    }
    return NodeOf(processes);
  };
  SeriesMemory memory;
  const auto value = [&](uint64_t gone, uint64_t stays, Collect collect) {
    return ScrapedNode(sends(gone, stays), {}, memory, kSeriesLimit, collect)
        .Value(Metric::kRankPointToPoint);
  };
  EXPECT_EQ(value(10, 5, Collect::kWhole), 15);
  EXPECT_EQ(value(20, 5, Collect::kAlerts), 25);
  EXPECT_EQ(value(0, 5, Collect::kWhole), 15);
  EXPECT_EQ(value(0, 5, Collect::kAlerts), 25);
}

}  // namespace
}  // namespace nccl_exporter::exporter
