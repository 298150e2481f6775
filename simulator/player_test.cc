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

std::string ValueOf(const std::string& line, const std::string& key) {
  return RecordedJob::ValueOf(line, key);
}
std::string HandleOf(const std::string& line) { return RecordedJob::HandleOf(line); }

TEST(Player, GivesInitWhatTheVersionHas) {
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
    const uint64_t id =
        std::stoull(job.ranks[0]["communicators"][0]["id"].get<std::string>(), nullptr, 16);
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

TEST(Player, HangsTasksOnGroupsUpTo227AndOnCallsFrom228) {
  const RecordedJob before = Record(OneAllReduce(22707), {kTimedMask, 0});
  const std::string group = HandleOf(before.Starting("U +Group")[0]);
  EXPECT_EQ(ValueOf(before.Starting("U +Coll")[0], "parent="), group);
  EXPECT_EQ(ValueOf(before.Starting("T +KernelCh")[0], "parent="),
            HandleOf(before.Starting("U +Coll")[0]));

  const RecordedJob after = Record(OneAllReduce(22809), {kTimedMask, 0});
  const std::string coll = after.Starting("U +Coll #")[0];
  EXPECT_EQ(ValueOf(coll, "parent="), HandleOf(after.Starting("U +CollApi")[0]));
  EXPECT_EQ(ValueOf(coll, "group="), HandleOf(after.Starting("U +Group #")[0]));
  EXPECT_EQ(ValueOf(after.Starting("U +CollApi")[0], "parent="),
            HandleOf(after.Starting("U +GroupApi")[0]));
  EXPECT_EQ(ValueOf(after.Starting("U +Group #")[0], "parent="), "#0");
  EXPECT_EQ(ValueOf(after.Starting("U +GroupApi")[0], "depth="), "1");
  EXPECT_EQ(after.Starting("U r23")[0].substr(0, after.Starting("U r23")[0].find(" at=")),
            "U r23 GroupApi #1 args=NULL");
}

TEST(Player, FillsTheFieldsOfACollective) {
  const std::map<int, std::string> kFields{
      {22304,
       "seq=0 func=4 datatype=7 count=262144 root=0 channels=8 warps=16 traffic=2097152 buffers=1 "
       "algo=1 proto=1"},
      {22403,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 "
       "traffic=2097152 buffers=1 algo=RING proto=LL128"},
      {22606,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 "
       "buffers=1 algo=RING proto=LL128"},
      {22707,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 "
       "buffers=1 algo=RING proto=LL128"},
      {23007,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 group=#3 "
       "buffers=1 algo=RING proto=LL128"},
      {23103,
       "seq=0 func=AllReduce datatype=ncclFloat32 count=262144 root=0 channels=8 warps=16 group=#3 "
       "variant=NULL0 tag=0 buffers=1 algo=RING proto=LL128"}};
  for (const auto& [release, fields] : kFields) {
    const std::string line =
        Record(OneAllReduce(release), {kHostMask, 0}, 1).Starting("U +Coll #")[0];
    EXPECT_EQ(ValueOf(line, "rank="), "1");
    EXPECT_EQ(line.substr(line.find("seq="), line.find(" at=") - line.find("seq=")), fields)
        << release;
  }
}

TEST(Player, AnnouncesGroupedSendAndReceiveAsTwoTasks) {
  JobOptions options = OneAllReduce(22809);
  options.workload.layout = "pp";  // a send, then a group of both, then a receive
  const RecordedJob job = Record(options, {kHostMask, 0});
  EXPECT_EQ(job.Order('U'),
            "+GroupApi r23 +P2pApi -P2pApi r24 +Group +P2p -P2p -Group -GroupApi +GroupApi r23 "
            "+P2pApi -P2pApi +P2pApi -P2pApi r24 +Group +P2p +P2p -P2p -P2p -Group -GroupApi "
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
    EXPECT_EQ(line.substr(line.find("func="), line.find(" at=") - line.find("func=")), fields)
        << release;
  }
}

TEST(Player, OpensOneGroupForAllGpusOfAProcess) {
  JobOptions options = OneAllReduce(22809);
  options.workload.shape.ranks_per_process = options.workload.shape.ranks_per_thread = 2;
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.Order('U'),
            "+GroupApi r23 +CollApi -CollApi +CollApi -CollApi r24 +Group +Coll -Coll -Group "
            "+Group +Coll -Coll -Group -GroupApi");
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
  EXPECT_EQ(job.TruthOf("AllReduce")["calls"], 1);
  EXPECT_TRUE(job.TruthOf("AllReduce")["sizes"].empty());
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
    return std::count_if(lines.begin(), lines.end(),
                         [](const auto& l) { return ValueOf(l, "func=") == "Broadcast"; });
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
      counts.emplace(start + ValueOf(line, "func="),
                     ValueOf(line, "datatype=") + ValueOf(line, "count="));
    }
  }
  EXPECT_EQ(counts["U +CollApiBroadcast"], "Unknown3145728");  // ncclUint8 has no name
  EXPECT_EQ(counts["U +Coll #Broadcast"], "ncclInt83145728");
  EXPECT_EQ(counts["U +CollApiAllGather"], "ncclBfloat16524288");
  EXPECT_EQ(counts["U +Coll #AllGather"], "ncclInt81048576");
  EXPECT_EQ(counts["U +Coll #ReduceScatter"], "ncclBfloat16524288");
}

TEST(Player, MakesCommunicatorsAgainAndMidway) {
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
  for (const nlohmann::json& communicator : job.ranks[0]["communicators"])
    ids.insert(communicator["id"]);
  EXPECT_EQ(ids.size(), 6u);
}

TEST(Player, ReportsNoEndOfWhatIsAborted) {
  JobOptions options = OneAllReduce(23007);
  options.steps = 4;
  std::string error;
  options.workload.elastic = ParseElasticChange("revoke@1", 23007, error);
  const RecordedJob job = Record(options, {kTimedMask, 0});
  EXPECT_EQ(job.Starting("init").size(), 2u);
  EXPECT_EQ(job.Starting("finalize").size(), 2u) << "by ncclCommDestroy, at the end of the job";
  EXPECT_EQ(job.Starting("U +Coll #").size(), 4u);
  const size_t channels = job.Starting("T +KernelCh").size();
  EXPECT_EQ(job.Starting("T -KernelCh").size(), channels / 4 * 3);
  EXPECT_EQ(job.TruthOf("AllReduce")["completed"], 1) << "of the first communicator";
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

}  // namespace
}  // namespace nccl_exporter::sim
