// SPDX-License-Identifier: Apache-2.0
// Every release calls the plugin in its own order; the orders here are those of NCCL's sources.
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
constexpr int kReleases[] = {22304, 22403, 22501, 22606, 22707, 22809, 22907, 23007, 23103};

std::string ValueOf(const std::string& line, const std::string& key) { return RecordedJob::ValueOf(line, key); }
std::string HandleOf(const std::string& line) {
  return line.substr(line.find('#'), line.find(' ', line.find('#')) - line.find('#'));
}

// The only function of the only communicator of rank 0.
const nlohmann::json& AccountOf(const RecordedJob& job, const std::string& function) {
  return job.ranks[0]["communicators"][0]["functions"][function];
}

uint64_t SumOver(const nlohmann::json& function, const std::string& key) {
  uint64_t sum = 0;
  for (const nlohmann::json& size : function["sizes"]) sum += size[key].get<uint64_t>();
  return sum;
}

TEST(Player, TellsInitWhatTheVersionSays) {
  for (const int release : kReleases) {
    const RecordedJob job = Record(OneAllReduce(release), {kHostMask, 0}, 1);
    const int version = NativeApiVersion(release);
    const std::string start = "init v" + std::to_string(version) + " ";
    ASSERT_EQ(job.Starting(start).size(), 1u) << release;
    const std::string line = job.Starting(start)[0];
    EXPECT_EQ(ValueOf(line, "version="), std::to_string(release));
    if (version < 4) continue;
    EXPECT_EQ(ValueOf(line, "name="), "single");
    EXPECT_EQ(ValueOf(line, "nodes="), "1");
    EXPECT_EQ(ValueOf(line, "ranks="), "2");
    EXPECT_EQ(ValueOf(line, "rank="), "1");
    const uint64_t id = std::stoull(job.ranks[0]["communicators"][0]["id"].get<std::string>(), nullptr, 16);
    EXPECT_EQ(ValueOf(line, "id="), std::to_string(id));
  }
}

TEST(Player, AnnouncesOneAllReduceInTheOrderOfTheRelease) {
  const std::string kTask = "+Group +Coll -Coll -Group";
  const std::string kWithCalls =
      "+GroupApi r23 +CollApi -CollApi r24 +KernelLaunch -KernelLaunch " + kTask + " -GroupApi";
  for (const int release : kReleases) {
    const RecordedJob job = Record(OneAllReduce(release), {kTimedMask | kKernelLaunch, 0});
    EXPECT_EQ(job.Order('U'), NativeApiVersion(release) < 5 ? kTask : kWithCalls) << release;
  }
}

TEST(Player, ReportsEveryChannelFromAnotherThread) {
  JobOptions options = OneAllReduce(22304);
  options.play.most_channels = 2;
  const std::map<int, std::string> kOrders{{22403, ""},
                                           {22606, "+KernelCh +KernelCh -KernelCh -KernelCh"},
                                           {22707, "+KernelCh +KernelCh r22 -KernelCh r22 -KernelCh"},
                                           {22809, "+KernelCh +KernelCh r22 -KernelCh r22 -KernelCh"},
                                           {23103, "+KernelCh +KernelCh r22 -KernelCh r22 -KernelCh"}};
  for (const auto& [release, order] : kOrders) {
    options.play.release = Release(release);
    EXPECT_EQ(Record(options, {kTimedMask, 0}).Order('T'), order) << release;
  }
}

TEST(Player, HangsTasksOnGroupsUpTo227AndOnCallsFrom228) {
  const RecordedJob before = Record(OneAllReduce(22707), {kTimedMask, 0});
  const std::string group = HandleOf(before.Starting("U +Group")[0]);
  EXPECT_EQ(ValueOf(before.Starting("U +Coll")[0], "parent="), group);
  EXPECT_EQ(ValueOf(before.Starting("T +KernelCh")[0], "parent="), HandleOf(before.Starting("U +Coll")[0]));

  const RecordedJob after = Record(OneAllReduce(22809), {kTimedMask, 0});
  const std::string coll = after.Starting("U +Coll #")[0];
  EXPECT_EQ(ValueOf(coll, "parent="), HandleOf(after.Starting("U +CollApi")[0]));
  EXPECT_EQ(ValueOf(coll, "group="), HandleOf(after.Starting("U +Group #")[0]));
  EXPECT_EQ(ValueOf(after.Starting("U +CollApi")[0], "parent="), HandleOf(after.Starting("U +GroupApi")[0]));
  EXPECT_EQ(ValueOf(after.Starting("U +Group #")[0], "parent="), "#0");
  EXPECT_EQ(ValueOf(after.Starting("U +GroupApi")[0], "depth="), "1");
  EXPECT_EQ(after.Starting("U r23")[0].substr(0, after.Starting("U r23")[0].find(" at=")),
            "U r23 GroupApi #1 args=NULL");
}

TEST(Player, FillsTheFieldsOfACollective) {
  const std::map<int, std::string> kFields{
      {22304,
       "seq=0 func=4 datatype=7 count=262144 root=0 channels=8 warps=16 traffic=2097152 buffers=1 algo=1 proto=1"},
      {22403,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 traffic=2097152 buffers=1 "
       "algo=RING proto=LL128"},
      {22606,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 buffers=1 algo=RING "
       "proto=LL128"},
      {22707,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 buffers=1 algo=RING "
       "proto=LL128"},
      {23007,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 group=#3 buffers=1 "
       "algo=RING proto=LL128"},
      {23103,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 group=#3 variant=NULL0 "
       "tag=0 buffers=1 algo=RING proto=LL128"}};
  for (const auto& [release, fields] : kFields) {
    const std::string line = Record(OneAllReduce(release), {kHostMask, 0}, 1).Starting("U +Coll #")[0];
    EXPECT_EQ(ValueOf(line, "rank="), "1");
    EXPECT_EQ(line.substr(line.find("seq="), line.find(" at=") - line.find("seq=")), fields) << release;
  }
}

TEST(Player, AnnouncesGroupedSendAndReceiveAsTwoTasks) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "pp";  // a send, then a group of both, then a receive
  const RecordedJob job = Record(options, {kHostMask, 0});
  EXPECT_EQ(job.Order('U'),
            "+GroupApi r23 +P2pApi -P2pApi r24 +Group +P2p -P2p -Group -GroupApi "
            "+GroupApi r23 +P2pApi -P2pApi +P2pApi -P2pApi r24 +Group +P2p +P2p -P2p -P2p -Group -GroupApi "
            "+GroupApi r23 +P2pApi -P2pApi r24 +Group +P2p -P2p -Group -GroupApi");
  EXPECT_EQ(ValueOf(job.Starting("U +GroupApi")[1], "depth="), "2");
  const std::vector<std::string> tasks = job.Starting("U +P2p #");
  EXPECT_EQ(ValueOf(tasks[1], "func="), "Send");
  EXPECT_EQ(ValueOf(tasks[2], "func="), "Recv");
  EXPECT_EQ(ValueOf(tasks[2], "peer="), "1");
}

TEST(Player, FillsTheFieldsOfASend) {
  const std::map<int, std::string> kFields{
      {22304, "func=6 datatype=9 count=2097152 peer=1"},
      {22403, "func=Send datatype=ncclBfloat16 count=2097152 peer=1"},
      {22606, "func=Send datatype=ncclBfloat16 count=2097152 peer=1"},
      {22707, "func=Send datatype=ncclBfloat16 count=2097152 peer=1 channels=8"},
      {23007, "func=Send datatype=ncclBfloat16 count=2097152 peer=1 channels=8 group=#3"},
      {23103, "func=Send datatype=ncclBfloat16 count=2097152 peer=1 channels=8 group=#3 tag=0"}};
  for (const auto& [release, fields] : kFields) {
    JobOptions options = OneAllReduce(release);
    options.workload.layout = "pp";
    const std::string line = Record(options, {kHostMask, 0}).Starting("U +P2p #")[0];
    EXPECT_EQ(line.substr(line.find("func="), line.find(" at=") - line.find("func=")), fields) << release;
  }
}

TEST(Player, OpensOneGroupForAllGpusOfAProcess) {
  JobOptions options = OneAllReduce(22809);
  options.workload.shape.ranks_per_process = options.workload.shape.ranks_per_thread = 2;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.Order('U'),
            "+GroupApi r23 +CollApi -CollApi +CollApi -CollApi r24 +Group +Coll -Coll -Group +Group +Coll -Coll -Group "
            "-GroupApi");
  const std::vector<std::string> calls = job.Starting("U +CollApi");
  EXPECT_EQ(ValueOf(calls[0], "context="), "1");
  EXPECT_EQ(ValueOf(calls[1], "context="), "2");
  EXPECT_EQ(ValueOf(calls[1], "parent="), HandleOf(job.Starting("U +GroupApi")[0]));
  EXPECT_EQ(ValueOf(job.Starting("U +GroupApi")[0], "context="), "1");
}

TEST(Player, SortsTheTasksOfAGroupBySize) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "dp";
  options.workload.aggregate = 3;
  const RecordedJob job = Record(options, {kHostMask, 0});
  const std::vector<std::string> calls = job.Starting("U +CollApi");
  const std::vector<std::string> tasks = job.Starting("U +Coll #");
  EXPECT_EQ(ValueOf(calls[0], "count="), "16384");
  EXPECT_EQ(ValueOf(tasks[0], "count="), "1048576");
  EXPECT_EQ(ValueOf(tasks[0], "parent="), HandleOf(calls[2]));
}

TEST(Player, SaysNothingToAMaskOfZero) {
  for (const int release : kReleases) {
    const RecordedJob job = Record(OneAllReduce(release), {0, 0});
    EXPECT_EQ(job.Order('U') + job.Order('T'), "") << release;
    EXPECT_EQ(job.Starting("finalize").size(), 1u);
    EXPECT_TRUE(job.ranks[0]["communicators"][0]["functions"].empty());
  }
}

TEST(Player, AnnouncesOnlyCallsToAMaskOfCalls) {
  const RecordedJob job = Record(OneAllReduce(23007), {kCollApi, 0});
  EXPECT_EQ(job.Order('U'), "+GroupApi r23 +CollApi -CollApi r24 -GroupApi");
  EXPECT_EQ(AccountOf(job, "AllReduce")["calls"], 1);
  EXPECT_TRUE(AccountOf(job, "AllReduce")["sizes"].empty());
}

TEST(Player, NeedsAHandleOfTheGroupUpTo227) {
  EXPECT_EQ(Record(OneAllReduce(22707), {kTimedMask, kGroup}).Order('U'), "+Group");
  EXPECT_EQ(Record(OneAllReduce(22809), {kTimedMask, kGroup}).Order('U'),
            "+GroupApi r23 +CollApi -CollApi r24 +Group +Coll -Coll -GroupApi");
}

TEST(Player, StopsTasksWithoutAHandleUpTo225) {
  EXPECT_EQ(Record(OneAllReduce(22501), {kColl, kColl}).Order('U'), "+Group +Coll -NULL -Group");
  EXPECT_EQ(Record(OneAllReduce(22606), {kColl, kColl}).Order('U'), "+Group +Coll -Group");
}

TEST(Player, NeedsMoreThanTheP2pBitUpTo225) {
  JobOptions options = OneAllReduce(22501);
  options.workload.layout = "pp";
  EXPECT_TRUE(Record(options, {kP2p, 0}).Starting("U +P2p").empty());
  options.play.release = Release(22606);
  EXPECT_FALSE(Record(options, {kP2p, 0}).Starting("U +P2p").empty());
}

TEST(Player, AnnouncesBroadcastAsACallOnlyFrom229) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "mixed";
  const auto broadcasts = [](const RecordedJob& job, const std::string& start) {
    const std::vector<std::string> lines = job.Starting(start);
    return std::count_if(lines.begin(), lines.end(), [](const auto& l) { return ValueOf(l, "func=") == "Broadcast"; });
  };
  const RecordedJob before = Record(options, {kTimedMask, 0});
  EXPECT_GT(broadcasts(before, "U +CollApi"), 0);
  EXPECT_EQ(broadcasts(before, "U +CollApi"), broadcasts(before, "U +Coll #"));
  options.play.release = Release(22907);
  const RecordedJob after = Record(options, {kTimedMask, 0});
  EXPECT_GT(broadcasts(after, "U +CollApi"), 0);
  EXPECT_EQ(broadcasts(after, "U +Coll #"), 0);
}

TEST(Player, CountsBytesInAllGatherAndBroadcastTasks) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "mixed";
  const RecordedJob job = Record(options, {kHostMask, 0});
  std::map<std::string, std::string> counts;
  for (const std::string start : {"U +CollApi", "U +Coll #"}) {
    for (const std::string& line : job.Starting(start)) {
      counts.emplace(start + ValueOf(line, "func="), ValueOf(line, "datatype=") + ValueOf(line, "count="));
    }
  }
  EXPECT_EQ(counts["U +CollApiBroadcast"], "Unknown3145728");  // ncclUint8 has no name
  EXPECT_EQ(counts["U +Coll #Broadcast"], "ncclInt83145728");
  EXPECT_EQ(counts["U +CollApiAllGather"], "ncclBfloat16524288");
  EXPECT_EQ(counts["U +Coll #AllGather"], "ncclInt81048576");
  EXPECT_EQ(counts["U +Coll #ReduceScatter"], "ncclBfloat16524288");
}

TEST(Player, GivesASendToItselfNoKernelEventsUpTo230) {
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
    return std::count_if(channels.begin(), channels.end(),
                         [&](const std::string& line) { return selves.contains(ValueOf(line, "parent=")); });
  };
  EXPECT_EQ(timed_selves(), 0);
  options.play.release = Release(23103);
  EXPECT_GT(timed_selves(), 0);
}

TEST(Player, AnnouncesACapturedCallOnceAndItsTasksAtEveryReplay) {
  JobOptions options = OneAllReduce(22809);
  options.play.captures_graphs = true;
  options.steps = 3;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.Order('U'), "+GroupApi r23 +CollApi -CollApi r24 -GroupApi");
  EXPECT_EQ(ValueOf(job.Starting("U +CollApi")[0], "captured="), "1");
  const std::vector<std::string> tasks = job.Starting("T +Coll #");
  ASSERT_EQ(tasks.size(), 3u);
  for (const std::string& task : tasks) EXPECT_EQ(ValueOf(task, "parent="), HandleOf(job.Starting("U +CollApi")[0]));
  EXPECT_EQ(SumOver(AccountOf(job, "AllReduce"), "timed_operations"), 3u);
}

TEST(Player, AnnouncesACapturedPlanWithoutProxyWorkAtCaptureOnlyFrom227) {
  JobOptions options = OneAllReduce(22809);
  options.play.captures_graphs = true;
  options.steps = 3;
  const RecordedJob job = Record(options, {kHostMask, 0});
  EXPECT_EQ(job.Order('U'), "+GroupApi r23 +CollApi -CollApi r24 +Group +Coll -Coll -Group -GroupApi");
  EXPECT_EQ(job.Order('T'), "");
  EXPECT_EQ(SumOver(AccountOf(job, "AllReduce"), "operations"), 0u);
  options.play.release = Release(22606);
  EXPECT_EQ(Record(options, {kHostMask, 0}).Order('U'), "");
}

TEST(Player, LaunchesNonblockingGroupsAfterTheirEnd) {
  JobOptions options = OneAllReduce(22809);
  options.play.is_nonblocking = true;
  const RecordedJob job = Record(options, {kHostMask, 0});
  EXPECT_EQ(job.Order('U'), "+GroupApi r23 +CollApi -CollApi r24 -GroupApi");
  EXPECT_EQ(job.Order('T'), "+Group +Coll -Coll -Group");
}

TEST(Player, ReportsProxyOperationsOfTheNetwork) {
  JobOptions options = OneAllReduce(23007);
  options.play.most_channels = 1;
  EXPECT_EQ(Record(options, {kColl | kProxyOp, 0}).Order('T'), "");
  options.play.network = Network::kAll;
  const RecordedJob job = Record(options, {kColl | kProxyOp, 0});
  EXPECT_EQ(job.Starting("T +ProxyOp").size(), 2u);  // a send and a receive
  EXPECT_EQ(job.Starting("T r19").size(), 2u);
  EXPECT_EQ(job.Starting("T -ProxyOp").size(), 2u);
  EXPECT_EQ(ValueOf(job.Starting("T +ProxyOp")[0], "parent="), HandleOf(job.Starting("U +Coll #")[0]));
  EXPECT_EQ(ValueOf(job.Starting("T +ProxyOp")[0], "pid="), std::to_string(job.ranks[0]["pid"].get<int>()));
  EXPECT_EQ(job.ranks[0]["communicators"][0]["timing_source"], "proxy");
  options.play.release = Release(22606);
  EXPECT_EQ(Record(options, {kColl | kProxyOp, 0}).Starting("T r3 ").size(), 1u);
}

TEST(Player, AccountsForTheTimesThatItSent) {
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
  EXPECT_EQ(AccountOf(job, "AllReduce")["duration_sum_ns"], stop - start);
}

TEST(Player, ShowsThePluginTheTimesOfTheJob) {
  JobOptions options = OneAllReduce(22606);
  const RecordedJob job = Record(options, {kTimedMask, 0});
  int64_t start = INT64_MAX;
  int64_t stop = 0;
  for (const std::string& line : job.Starting("T +KernelCh"))
    start = std::min<int64_t>(start, std::stoll(ValueOf(line, "at=")));
  for (const std::string& line : job.Starting("T -KernelCh"))
    stop = std::max<int64_t>(stop, std::stoll(ValueOf(line, "at=")));
  EXPECT_EQ(AccountOf(job, "AllReduce")["duration_sum_ns"], stop - start);
  EXPECT_EQ(job.ranks[0]["communicators"][0]["timing_source"], "kernel_cpu");
  EXPECT_EQ(Record(options, {kTimedMask, 0}).Starting("T -KernelCh").back(), job.Starting("T -KernelCh").back());
}

TEST(Player, KeepsTheOrderOnEveryChannel) {
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

TEST(Player, MakesCommunicatorsAnewAndMidway) {
  JobOptions options = OneAllReduce(23007);
  options.steps = 6;
  options.play.recreate_every = 3;
  options.workload.split_at_step = 1;
  options.workload.shrink_at_step = 2;
  options.workload.shape.ranks_per_node = 4;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.Starting("init").size(), 6u);  // parent, half and shrunk, twice
  EXPECT_EQ(job.Starting("finalize").size(), 6u);
  std::set<std::string> ids;
  for (const nlohmann::json& communicator : job.ranks[0]["communicators"]) ids.insert(communicator["id"]);
  EXPECT_EQ(ids.size(), 6u);
}

TEST(Player, AnnouncesNoChannelsForCollNetIn227To230) {
  JobOptions options = OneAllReduce(23007);
  options.workload.layout = "dp";
  options.workload.shape = {.nodes = 2, .ranks_per_node = 1};
  options.play.uses_collnet = true;
  const auto large = [&] { return Record(options, {kTimedMask, 0}).Starting("U +Coll #")[2]; };
  EXPECT_EQ(ValueOf(large(), "channels="), "0");
  EXPECT_EQ(ValueOf(large(), "algo="), "COLLNET_DIRECT");
  options.play.release = Release(23103);
  EXPECT_EQ(ValueOf(large(), "channels="), "8");
}

TEST(Player, LeavesTheLastGroupInFlightWhenItIsKilledThere) {
  JobOptions options = OneAllReduce(23007);
  options.steps = 3;
  options.kill = Kill{.rank = 0, .step = 2, .is_in_flight = true};
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(SumOver(AccountOf(job, "AllReduce"), "operations"), 3u);
  EXPECT_EQ(SumOver(AccountOf(job, "AllReduce"), "timed_operations"), 2u);
  EXPECT_EQ(AccountOf(job, "AllReduce")["completed"], 2);
  EXPECT_TRUE(job.Starting("finalize").empty());
  EXPECT_EQ(job.ranks[0]["killed"], true);
}

}  // namespace
}  // namespace nccl_exporter::sim
