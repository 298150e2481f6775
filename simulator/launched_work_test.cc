// SPDX-License-Identifier: Apache-2.0
// Events of GPU and network about launched work, and the times that the plugin sees; also at
// replays of captured graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "simulator/release/profiler_event.h"
#include "simulator/testing/recorded_job.h"

namespace nccl_exporter::sim {
namespace {

constexpr uint32_t kHostMask = kColl | kP2p;
constexpr uint32_t kTimedMask = kColl | kP2p | kKernelCh;

std::string ValueOf(const std::string& line, const std::string& key) {
  return RecordedJob::ValueOf(line, key);
}
std::string HandleOf(const std::string& line) { return RecordedJob::HandleOf(line); }

TEST(LaunchedWork, ReportsEveryChannelFromAnotherThread) {
  JobOptions options = OneAllReduce(22304);
  options.play.most_channels = 2;
  const std::map<int, std::string> kOrders{
      {22403, ""},
      {22606, "+KernelCh +KernelCh -KernelCh -KernelCh"},
      {22707, "+KernelCh +KernelCh r22 -KernelCh r22 -KernelCh"},
      {22809, "+KernelCh +KernelCh r22 -KernelCh r22 -KernelCh"},
      {23103, "+KernelCh +KernelCh r22 -KernelCh r22 -KernelCh"}};
  for (const auto& [release, order] : kOrders) {
    options.play.release = Release(release);
    EXPECT_EQ(Record(options, {kTimedMask, 0}).Order('T'), order) << release;
  }
}

TEST(LaunchedWork, GivesASendToItselfNoKernelEventsUpTo230) {
  JobOptions options = OneAllReduce(23007);
  options.workload.layout = "moe";
  options.workload.shape.ranks_per_node = 4;
  const auto timed_selves = [&] {
    const RecordedJob job = Record(options, {kTimedMask, 0}, 2);
    std::set<std::string> selves;
    for (const std::string& line : job.Starting("U +P2p #")) {
      if (ValueOf(line, "peer=") == "2") selves.insert(HandleOf(line));
    }
    EXPECT_EQ(selves.size(), 12u);  // six exchanges, both ways
    const std::vector<std::string> channels = job.Starting("T +KernelCh");
    return std::count_if(channels.begin(), channels.end(), [&](const std::string& line) {
      return selves.contains(ValueOf(line, "parent="));
    });
  };
  EXPECT_EQ(timed_selves(), 0);
  options.play.release = Release(23103);
  EXPECT_GT(timed_selves(), 0);
}

TEST(LaunchedWork, AnnouncesACapturedCallOnceAndItsTasksAtEveryReplay) {
  JobOptions options = OneAllReduce(22809);
  options.play.captures_graphs = true;
  options.steps = 3;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.Order('U'), "+GroupApi r23 +CollApi -CollApi r24 -GroupApi");
  EXPECT_EQ(ValueOf(job.Starting("U +CollApi")[0], "captured="), "1");
  const std::vector<std::string> tasks = job.Starting("T +Coll #");
  ASSERT_EQ(tasks.size(), 3u);
  for (const std::string& task : tasks)
    EXPECT_EQ(ValueOf(task, "parent="), HandleOf(job.Starting("U +CollApi")[0]));
  EXPECT_EQ(job.SumOfSizes("AllReduce", "timed_operations"), 3u);
}

TEST(LaunchedWork, AnnouncesACapturedPlanWithoutProxyWorkAtCaptureOnlyFrom227) {
  JobOptions options = OneAllReduce(22809);
  options.play.captures_graphs = true;
  options.steps = 3;
  const RecordedJob job = Record(options, {kHostMask, 0});
  EXPECT_EQ(job.Order('U'),
            "+GroupApi r23 +CollApi -CollApi r24 +Group +Coll -Coll -Group -GroupApi");
  EXPECT_EQ(job.Order('T'), "");
  EXPECT_EQ(job.SumOfSizes("AllReduce", "operations"), 0u);
  options.play.release = Release(22606);
  EXPECT_EQ(Record(options, {kHostMask, 0}).Order('U'), "");
}

TEST(LaunchedWork, LaunchesNonblockingGroupsAfterTheirEnd) {
  JobOptions options = OneAllReduce(22809);
  options.play.is_nonblocking = true;
  const RecordedJob job = Record(options, {kHostMask, 0});
  EXPECT_EQ(job.Order('U'), "+GroupApi r23 +CollApi -CollApi r24 -GroupApi");
  EXPECT_EQ(job.Order('T'), "+Group +Coll -Coll -Group");
}

TEST(LaunchedWork, ReportsProxyOperationsOfTheNetwork) {
  JobOptions options = OneAllReduce(23007);
  options.play.most_channels = 1;
  EXPECT_EQ(Record(options, {kColl | kProxyOp, 0}).Order('T'), "");
  options.play.network = Network::kAll;
  const RecordedJob job = Record(options, {kColl | kProxyOp, 0});
  EXPECT_EQ(job.Starting("T +ProxyOp").size(), 2u);  // a send and a receive
  EXPECT_EQ(job.Starting("T r19").size(), 2u);
  EXPECT_EQ(job.Starting("T -ProxyOp").size(), 2u);
  EXPECT_EQ(ValueOf(job.Starting("T +ProxyOp")[0], "parent="),
            HandleOf(job.Starting("U +Coll #")[0]));
  EXPECT_EQ(ValueOf(job.Starting("T +ProxyOp")[0], "pid="),
            std::to_string(job.ranks[0]["pid"].get<int>()));
  EXPECT_EQ(job.ranks[0]["communicators"][0]["timing_source"], "proxy");
  options.play.release = Release(22606);
  EXPECT_EQ(Record(options, {kColl | kProxyOp, 0}).Starting("T r3 ").size(), 1u);
}

TEST(LaunchedWork, CountsTheTimesThatItSent) {
  JobOptions options = OneAllReduce(23007);
  options.play.gpu_clock_granularity_ns = 1024;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  uint64_t start = UINT64_MAX;
  uint64_t stop = 0;
  for (const std::string& line : job.Starting("T +KernelCh"))
    start = std::min<uint64_t>(start, std::stoull(ValueOf(line, "ptimer=")));
  for (const std::string& line : job.Starting("T r22"))
    stop = std::max<uint64_t>(stop, std::stoull(ValueOf(line, "ptimer=")));
  EXPECT_EQ(start % 1024, 0u);
  EXPECT_GT(stop, start);
  EXPECT_EQ(job.TruthOf("AllReduce")["duration_sum_ns"], stop - start);
}

TEST(LaunchedWork, ShowsThePluginTheTimesOfTheJob) {
  JobOptions options = OneAllReduce(22606);
  const RecordedJob job = Record(options, {kTimedMask, 0});
  int64_t start = INT64_MAX;
  int64_t stop = 0;
  for (const std::string& line : job.Starting("T +KernelCh"))
    start = std::min<int64_t>(start, std::stoll(ValueOf(line, "at=")));
  for (const std::string& line : job.Starting("T -KernelCh"))
    stop = std::max<int64_t>(stop, std::stoll(ValueOf(line, "at=")));
  EXPECT_EQ(job.TruthOf("AllReduce")["duration_sum_ns"], stop - start);
  EXPECT_EQ(job.ranks[0]["communicators"][0]["timing_source"], "kernel_cpu");
  EXPECT_EQ(Record(options, {kTimedMask, 0}).Starting("T -KernelCh").back(),
            job.Starting("T -KernelCh").back());
}

TEST(LaunchedWork, KeepsTheOrderOnEveryChannel) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "mixed";
  options.steps = 5;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  std::map<std::string, uint64_t> latest;  // start by channel
  for (const std::string& line : job.Starting("T +KernelCh")) {
    const std::string channel = ValueOf(line, "context=") + "/" + ValueOf(line, "channel=");
    const uint64_t start = std::stoull(ValueOf(line, "ptimer="));
    EXPECT_GE(start, latest[channel]);
    latest[channel] = start;
  }
  EXPECT_GT(latest.size(), 8u);
  EXPECT_EQ(job.Starting("T +KernelCh").size(), job.Starting("T -KernelCh").size());
}

TEST(LaunchedWork, LeavesTheLastGroupInFlightWhenItIsKilledThere) {
  JobOptions options = OneAllReduce(23007);
  options.steps = 3;
  options.kill = Kill{.rank = 0, .step = 2, .is_in_flight = true};
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.SumOfSizes("AllReduce", "operations"), 3u);
  EXPECT_EQ(job.SumOfSizes("AllReduce", "timed_operations"), 2u);
  EXPECT_EQ(job.TruthOf("AllReduce")["completed"], 2);
  EXPECT_TRUE(job.Starting("finalize").empty());
  EXPECT_EQ(job.ranks[0]["killed"], true);
}

}  // namespace
}  // namespace nccl_exporter::sim
