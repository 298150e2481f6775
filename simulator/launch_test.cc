// SPDX-License-Identifier: Apache-2.0
// Events of a launch, their order, and their changes under each fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "simulator/release/profiler_event.h"
#include "simulator/testing/recorded_job.h"

namespace nccl_exporter::sim {
namespace {

constexpr uint32_t kTimedMask = kColl | kP2p | kKernelCh;

uint64_t NumberOf(const std::string& line, const std::string& key) {
  return std::stoull(RecordedJob::ValueOf(line, key));
}
std::string HandleOf(const std::string& line) { return RecordedJob::HandleOf(line); }

JobOptions Ladder(int nccl_version, const std::string& fault, const char* layout = "ladder") {
  JobOptions options = OneAllReduce(nccl_version);
  options.workload.layout = layout;
  options.workload.shape.ranks_per_node = 4;
  options.steps = 30;
  options.steps_per_second = 5000;
  options.play.lists_operations = true;
  if (!fault.empty()) {
    EXPECT_EQ(options.play.faults.Add(fault, options.play.release), "");
  }
  return options;
}

uint64_t Affected(const RecordedJob& job, const std::string& function) {
  return job.TruthOf(function)["affected"].get<uint64_t>();
}

// By handle of the KernelCh: what its start and its stop said.
std::map<std::string, std::pair<uint64_t, uint64_t>> KernelTimesOf(const RecordedJob& job) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> times;
  for (const std::string& line : job.Starting("T +KernelCh"))
    times[HandleOf(line)].first = NumberOf(line, "ptimer=");
  for (const std::string& line : job.Starting("T r22"))
    times[HandleOf(line)].second = NumberOf(line, "ptimer=");
  return times;
}

TEST(Launch, StartsItsProxyOperationsBeforeThoseOfTheNext) {
  JobOptions options = OneAllReduce(22707);
  options.workload.layout = "tp";
  options.play.network = Network::kAll;
  options.steps = 5;
  const RecordedJob job = Record(options, {kColl | kProxyOp, 0});
  uint64_t latest = 0;
  for (const std::string& line : job.Starting("T +ProxyOp")) {
    const uint64_t parent = std::stoull(RecordedJob::ValueOf(line, "parent=").substr(1));
    EXPECT_GE(parent, latest);
    latest = parent;
  }
  EXPECT_GT(latest, 0u);
}

TEST(Launch, NeverShowsAThreadAnEarlierTime) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "mixed";
  options.play.network = Network::kAll;
  options.steps = 10;
  const RecordedJob job = Record(options, {kTimedMask | kProxyOp, 0});
  for (const std::string thread : {"U ", "T "}) {
    uint64_t latest = 0;
    for (const std::string& line : job.Starting(thread)) {
      EXPECT_GE(NumberOf(line, "at="), latest) << line;
      latest = NumberOf(line, "at=");
    }
  }
}

TEST(Launch, ListsTrueDurationsThatAreTheAccountsWithoutFaults) {
  const RecordedJob job = Record(Ladder(23007, ""), {kTimedMask, 0});
  const nlohmann::json& communicator = job.ranks[0]["communicators"][0];
  std::map<std::string, uint64_t> sums;
  for (const nlohmann::json& operation : communicator["operations"]) {
    EXPECT_FALSE(operation["affected"].get<bool>());
    if (!operation["true_ns"].is_null())
      sums[operation["function"]] += operation["true_ns"].get<uint64_t>();
  }
  for (const auto& [function, truth] : communicator["functions"].items()) {
    EXPECT_EQ(sums[function], truth["duration_sum_ns"].get<uint64_t>()) << function;
  }
}

TEST(Launch, ReportsOlderWorkWhereTheHostIsBehind) {
  for (const auto& [fault, release, layout] :
       {std::tuple("drift-self-send", 22809, "ladder-to-self"),
        std::tuple("drift-broadcast", 23206, "ladder")}) {
    const RecordedJob whole = Record(Ladder(release, "", layout), {kTimedMask, 0});
    const RecordedJob job = Record(Ladder(release, fault, layout), {kTimedMask, 0});
    EXPECT_GT(Affected(job, "AllReduce"), 0u) << fault;
    // Where the host waits for the entry of a Broadcast, which has no bit, it is not written before
    // the next round.
    EXPECT_LE(job.Starting("T +KernelCh").size(), whole.Starting("T +KernelCh").size()) << fault;
    EXPECT_GT(job.Starting("T +KernelCh").size(), whole.Starting("T +KernelCh").size() / 2)
        << fault;
    // The last work of each channel is never shown: no time is as late as the latest without the
    // fault.
    const auto latest = [](const RecordedJob& recorded) {
      uint64_t stop = 0;
      for (const auto& [handle, times] : KernelTimesOf(recorded))
        stop = std::max(stop, times.second);
      return stop;
    };
    EXPECT_LT(latest(job), latest(whole)) << fault;
  }
}

TEST(Launch, StopsAHandleOfFormerWorkWhenAStartIsLost) {
  const RecordedJob job = Record(Ladder(22809, "lost-start:every=2"), {kTimedMask, 0});
  std::map<std::string, int> stops;
  for (const std::string& line : job.Starting("T -KernelCh")) ++stops[HandleOf(line)];
  EXPECT_TRUE(
      std::any_of(stops.begin(), stops.end(), [](const auto& stop) { return stop.second > 1; }));
  EXPECT_LT(job.Starting("T +KernelCh").size(), job.Starting("T -KernelCh").size());
}

TEST(Launch, LosesStopsAndWholeChannelsByTurns) {
  const RecordedJob whole = Record(Ladder(23007, ""), {kTimedMask, 0});
  const RecordedJob job = Record(Ladder(23007, "lost-kernel:every=3"), {kTimedMask, 0});
  const size_t starts = whole.Starting("T +KernelCh").size() - job.Starting("T +KernelCh").size();
  const size_t stops = whole.Starting("T -KernelCh").size() - job.Starting("T -KernelCh").size();
  EXPECT_EQ(stops, 50u);  // of 30 steps with 5 launches that have events
  EXPECT_EQ(starts, 25u);
}

TEST(Launch, SaysNothingMoreOnAChannelThatIsStuck) {
  const RecordedJob whole = Record(Ladder(23007, ""), {kTimedMask, 0});
  const RecordedJob job = Record(Ladder(23007, "stuck:after=50"), {kTimedMask, 0});
  EXPECT_LT(job.Starting("T +KernelCh").size(), whole.Starting("T +KernelCh").size());
  EXPECT_EQ(job.Starting("U +Coll #").size(), whole.Starting("U +Coll #").size());
}

TEST(Launch, StampsWhatItIsToldTo) {
  using Times = std::pair<uint64_t, uint64_t>;
  const auto count = [](const std::string& fault, bool (*is_so)(const Times&)) {
    const RecordedJob job = Record(Ladder(23007, fault), {kTimedMask, 0});
    const auto times = KernelTimesOf(job);
    return std::count_if(times.begin(), times.end(),
                         [&](const auto& kernel) { return is_so(kernel.second); });
  };
  EXPECT_GT(count("zero", [](const Times& t) { return t.first == 0; }), 0);
  EXPECT_GT(count("zero", [](const Times& t) { return t.second == 0; }), 0);
  EXPECT_GT(count("backwards", [](const Times& t) { return t.second < t.first; }), 0);
  EXPECT_GT(count("equal", [](const Times& t) { return t.second == t.first; }), 0);
  EXPECT_GT(count("jump:by=5000000,every=1000000",
                  [](const Times& t) { return t.second > t.first + 5000000; }),
            0);
  EXPECT_EQ(count("", [](const Times& t) { return t.first == 0 || t.second <= t.first; }), 0);
}

TEST(Launch, ReportsNewerWorkWhenThePollingThreadIsLate) {
  const JobOptions late = Ladder(22809, "ring-overrun:late=40000000,every=50000000");
  const RecordedJob job = Record(late, {kTimedMask, 0});
  EXPECT_GT(Affected(job, "AllReduce"), 0u);
  EXPECT_EQ(job.Starting("T +KernelCh").size(), job.Starting("T -KernelCh").size());
  // Every run finds the same: a poll does not depend on how fast the threads of this process are.
  EXPECT_EQ(job.Starting("T "), Record(late, {kTimedMask, 0}).Starting("T "));
}

TEST(Launch, ReportsOldWorkAgainAtReplaysAfterAnEagerCall) {
  JobOptions options = Ladder(22809, "drift-graph");
  options.play.captures_graphs = true;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_GT(Affected(job, "AllReduce"), 0u);
  std::map<std::pair<uint64_t, uint64_t>, int> pairs;
  for (const auto& [handle, times] : KernelTimesOf(job)) ++pairs[times];
  EXPECT_TRUE(
      std::any_of(pairs.begin(), pairs.end(), [](const auto& pair) { return pair.second > 8; }));
}

}  // namespace
}  // namespace nccl_exporter::sim
