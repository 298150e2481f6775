// SPDX-License-Identifier: Apache-2.0
// The API keeps what docs/api.md promises.
#include "exporter/web/node_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/findings/findings_json.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

constexpr int64_t kStepNs = 5000000000;

json Answer(const collector::NodeSnapshot& node, const NodeJudge& judge) {
  return json::parse(NodeJson(node, judge,
                              {.node_name = "n1",
                               .telemetry_path = "/metrics",
                               .start_realtime_ns = kStepNs,
                               .segment_directories = {"/no/such/directory"}}));
}

// The example after one step in which its world reduced once more.
class NodeJsonTest : public testing::Test {
 protected:
  NodeJsonTest() : node_(*ExampleSnapshot()) {
    uint32_t slot = 0;
    for (collector::ProcessSnapshot& process : node_.processes) {
      process.segment = std::to_string(process.pid);
      for (collector::CommunicatorSnapshot& communicator : process.communicators)
        communicator.slot = slot++;
    }
    judge_.Record(BookOf(node_), 0);
    node_.taken_realtime_ns += kStepNs;
    collector::CommunicatorSnapshot& world = node_.processes[0].communicators[0];
    AddOperation(world, Function::kAllReduce, 1 << 20, 4000000);
    world.arrivals =
        collector::ArrivalCounts{.compared = 103, .last = 100, .lateness_ns = 1012500000};
    for (collector::ProcessSnapshot& process : node_.processes) {
      for (collector::CommunicatorSnapshot& communicator : process.communicators) {
        if (!communicator.network) continue;
        AddNetwork(*communicator.network);
        communicator.network_bus_bytes->all[0] += 30 << 20;
        communicator.network_bus_bytes->timed[0] += 3 << 20;
      }
    }
    judge_.Record(BookOf(node_), kStepNs);
    answer_ = Answer(node_, judge_);
  }

  // Another second of sends, of which half is for the network, and one of receives.
  static void AddNetwork(collector::NetworkCounts& counts) {
    counts +=
        {.directions = {
             {{.wait_ns = {400000000, 100000000, 500000000, 0}, .bytes = 1 << 20, .operations = 2},
              {.wait_ns = {100000000, 200000000, 600000000, 100000000},
               .bytes = 1 << 19,
               .operations = 1}}}};
  }

  const json& Communicator(const std::string& name) const {
    for (const json& communicator : answer_["communicators"]) {
      if (communicator["comm_name"] == name) return communicator;
    }
    throw std::runtime_error("no communicator " + name);
  }

  collector::NodeSnapshot node_;
  NodeJudge judge_;
  json answer_;
};

// A node of two users, one of which has many communicators.
collector::NodeSnapshot CrowdedNode() {
  collector::NodeSnapshot node;
  for (const uint64_t uid : {uint64_t{1001}, uint64_t{1002}}) {
    collector::ProcessSnapshot process;
    process.uid = uid;
    process.is_alive = true;
    process.segment = std::to_string(uid);
    for (uint32_t i = 0; i < (uid == 1001 ? 200u : 2u); ++i) {
      collector::CommunicatorSnapshot communicator;
      communicator.has_identity = true;
      communicator.id = i + 1;
      communicator.slot = i;
      communicator.ranks = communicator.nodes = 1;
      process.communicators.push_back(communicator);
    }
    node.processes.push_back(process);
  }
  return node;
}

std::string AnswerWithin(size_t limit, const collector::NodeSnapshot& node,
                         const NodeJudge& judge) {
  return NodeJson(node, judge,
                  {.node_name = "n1", .telemetry_path = "/metrics", .node_answer_bytes = limit});
}

// Regression: one user's communicators made the answer, and the memory for it, as large as they
// liked.
TEST(NodeAnswerTest, LeavesOutWhatIsBeyondItsLimit) {
  const collector::NodeSnapshot node = CrowdedNode();
  NodeJudge judge;
  judge.Record(BookOf(node), 0);
  const std::string whole = AnswerWithin(kNodeAnswerBytes, node, judge);
  EXPECT_EQ(json::parse(whole)["left_out"], json({{"processes", 0}, {"communicators", 0}}));
  const size_t limit = whole.size() / 2;
  const std::string text = AnswerWithin(limit, node, judge);
  EXPECT_LE(text.size(), limit + 64) << "beside the counts of what is left out";
  EXPECT_GT(text.size(), limit * 9 / 10);
  const json answer = json::parse(text);
  size_t of_other = 0;
  for (const json& communicator : answer["communicators"]) of_other += communicator["uid"] == 1002;
  EXPECT_EQ(of_other, 2u) << "the user with few loses none";
  EXPECT_GT(answer["communicators"].size(), 50u);
  EXPECT_EQ(answer["left_out"]["communicators"], 202 - answer["communicators"].size());
  EXPECT_EQ(answer["processes"].size(), 2u);
  const json none = json::parse(AnswerWithin(1, node, judge));
  EXPECT_EQ(none["communicators"], json::array());
  EXPECT_EQ(none["left_out"], json({{"processes", 2}, {"communicators", 202}}));
}

TEST(NodeAnswerTest, ListsThoseInTroubleFirst) {
  collector::NodeSnapshot node = CrowdedNode();
  node.processes.resize(1);
  for (int i = 0; i < 200; ++i) {
    collector::ProcessSnapshot process;
    process.uid = 1001;
    process.pid = 2000 + i;
    process.is_alive = true;
    process.is_stopped = i == 199;
    node.processes.push_back(process);
  }
  node.taken_realtime_ns = 100 * kStepNs;
  // A rank of the last communicator is missing.
  node.processes[0].communicators.back().ranks = 2;
  NodeJudge judge;
  judge.Record(BookOf(node), node.taken_realtime_ns);
  const std::string whole = AnswerWithin(kNodeAnswerBytes, node, judge);
  const json answer = json::parse(AnswerWithin(whole.size() / 3, node, judge));
  ASSERT_GT(answer["left_out"]["communicators"], 0);
  ASSERT_GT(answer["left_out"]["processes"], 0);
  EXPECT_EQ(answer["communicators"].back()["ranks"], 2);
  EXPECT_EQ(answer["processes"].back()["stopped"], true);
}

TEST_F(NodeJsonTest, NamesTheNodeAndTheDaemon) {
  EXPECT_EQ(answer_["api"], "v1");
  EXPECT_EQ(answer_["node"], "n1");
  EXPECT_EQ(answer_["links"]["metrics"], "/metrics");
  EXPECT_EQ(answer_["exporter"]["start"], 5);
  EXPECT_EQ(answer_["exporter"]["commit"], "");
}

TEST_F(NodeJsonTest, ShowsRanksWithWhatTheyAreIn) {
  const json& rank = Communicator("world")["local_ranks"][0];
  EXPECT_EQ(rank["rank"], 3);
  EXPECT_EQ(rank["in_flight_count"], 2);
  EXPECT_EQ(rank["in_flight"][0]["collective"], "AllReduce");
  EXPECT_EQ(rank["in_flight"][0]["sequence"], 3);
  EXPECT_EQ(rank["in_flight"][1]["sequence"], nullptr) << "of a Recv";
  EXPECT_EQ(rank["in_flight"][1]["peer"], 2);
}

TEST_F(NodeJsonTest, SaysHowLateARankArrives) {
  const json& arrivals = Communicator("world")["local_ranks"][0]["arrivals"];
  EXPECT_EQ(arrivals["compared"], 100);
  EXPECT_EQ(arrivals["last"], 98);
  EXPECT_EQ(arrivals["mean_lateness_seconds"], 0.01);
}

TEST_F(NodeJsonTest, SaysWhereRecentNetworkTimeWent) {
  size_t timed = 0;
  for (const json& communicator : answer_["communicators"]) {
    for (const json& rank : communicator["local_ranks"]) {
      const json& network = rank["network"];
      if (network.is_null()) continue;
      ++timed;
      EXPECT_EQ(network["timed_share"], 0.1);
      EXPECT_EQ(network["seconds"], 5);
      EXPECT_EQ(network["send"],
                (json{{"operations", 2},
                      {"bytes", 1 << 20},
                      {"all_bytes", 10 << 20},
                      {"wait_seconds", {{"gpu", 0.4}, {"peer", 0.1}, {"network", 0.5}}}}));
      EXPECT_EQ(network["recv"]["all_bytes"], nullptr) << "none of its operations was timed";
      EXPECT_EQ(network["recv"]["wait_seconds"],
                (json{{"gpu", 0.3}, {"network", 0.6}, {"flush", 0.1}}))
          << "a receive that is not posted waits for its own rank";
    }
  }
  EXPECT_EQ(timed, 1u) << "the others are not timed";
}

TEST_F(NodeJsonTest, ChartsAreAsLongAsTheHistory) {
  EXPECT_EQ(answer_["history"]["times"].size(), 1u);
  for (const json& collective : Communicator("world")["collectives"]) {
    for (const char* chart : {"operations_per_second", "bytes_per_second", "duration_seconds",
                              "bus_bytes_per_second"}) {
      EXPECT_EQ(collective["history"][chart].size(), 1u) << collective["collective"] << chart;
    }
    if (collective["collective"] != "AllReduce") continue;
    EXPECT_EQ(collective["operations"], 5);
    EXPECT_EQ(collective["recent"]["operations_per_second"], 0.2);
    EXPECT_EQ(collective["history"]["duration_seconds"][0], 0.004);
    EXPECT_EQ(collective["history"]["heat"].size(), 1u);
  }
}

TEST_F(NodeJsonTest, WhatIsNotKnownIsNull) {
  for (const json& communicator : answer_["communicators"]) {
    if (communicator["comm"] != "0000000000000abc") continue;
    EXPECT_EQ(communicator["ranks"], nullptr);
    EXPECT_EQ(communicator["missing_ranks"], nullptr);
    EXPECT_EQ(communicator["no_room_ranks"], nullptr);
    const json& rank = communicator["local_ranks"][0];
    EXPECT_EQ(rank["gpu"], nullptr);
    EXPECT_EQ(rank["completed_sequence"], nullptr);
    EXPECT_EQ(rank["in_flight_count"], nullptr);
    EXPECT_EQ(rank["arrivals"], nullptr);
    return;
  }
  FAIL() << "the communicator of the old process is not there";
}

TEST_F(NodeJsonTest, SaysWhatIsNotSeenOfARankAndWhy) {
  for (collector::CommunicatorSnapshot& communicator : node_.processes[0].communicators) {
    if (communicator.name != "world") continue;
    communicator.timing_reason = TimingReason::kDrift;
    communicator.drift_cause = DriftCause::kMessageToSelf;
    communicator.unseen_operations = 7;
    communicator.probation_launches = 64;
  }
  const json& healthy = Communicator("world")["local_ranks"][0];
  EXPECT_EQ(healthy["drift_cause"], nullptr);
  EXPECT_EQ(healthy["probation_launches"], 0);
  EXPECT_EQ(healthy["unseen_operations"], 0);
  const json answer = Answer(node_, judge_);
  for (const json& communicator : answer["communicators"]) {
    if (communicator["comm_name"] != "world") continue;
    const json& rank = communicator["local_ranks"][0];
    EXPECT_EQ(rank["timing_reason"], "drift");
    EXPECT_EQ(rank["drift_cause"], "message_to_self");
    EXPECT_EQ(rank["unseen_operations"], 7);
    EXPECT_EQ(rank["probation_launches"], 64);
  }
}

// Four different words: a process runs, is stopped, has ended, or was killed.
TEST_F(NodeJsonTest, StoppedEndedAndKilledProcessesDiffer) {
  collector::ProcessSnapshot& process = node_.processes[0];
  const auto state = [&] {
    const json answer = Answer(node_, judge_);
    const json& shown = answer["processes"][0];
    return json{shown["alive"], shown["stopped"], shown["ended"]};
  };
  process.is_alive = true;
  process.is_stopped = std::nullopt;
  EXPECT_EQ(state(), (json{true, nullptr, false})) << "in another PID namespace";
  process.is_stopped = true;
  EXPECT_EQ(state(), (json{true, true, false}));
  const json answer = Answer(node_, judge_);
  for (const json& communicator : answer["communicators"]) {
    if (communicator["comm_name"] != "world") continue;
    EXPECT_EQ(communicator["local_ranks"][0]["stopped"], true);
  }
  process.is_alive = false;
  process.is_stopped = false;
  EXPECT_EQ(state(), (json{false, false, false})) << "killed: communicators are open";
  for (collector::CommunicatorSnapshot& communicator : process.communicators)
    communicator.is_closed = true;
  EXPECT_EQ(state(), (json{false, false, true}));
}

TEST_F(NodeJsonTest, CountsTheRanksThatUsedACollective) {
  for (const json& collective : Communicator("world")["collectives"])
    EXPECT_EQ(collective["used_by"], 1) << collective["collective"];
}

TEST_F(NodeJsonTest, RepeatsTheJudgementInEachLateRank) {
  EXPECT_EQ(Communicator("world")["local_ranks"][0]["arrivals"]["late"], false)
      << "last nearly always, and no finding";
}

// Empty; of its own for each caller.
std::string NewDirectory() {
  std::string path = testing::TempDir() + "/directory-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no directory " + path);
  return path;
}

TEST_F(NodeJsonTest, SaysWhichDirectoriesAreWatchedAndWhetherTheyCanBeRead) {
  const std::string scratch = NewDirectory();
  const std::string file = scratch + "/file";
  std::ofstream(file) << "x";
  const std::string pattern = scratch + "/of-*";
  const DaemonFacts facts{.node_name = "n1",
                          .telemetry_path = "/metrics",
                          .segment_directories = {scratch, "/no/such", file, pattern}};
  const auto directories = [&] {
    return json::parse(NodeJson(node_, judge_, facts))["directories"];
  };
  EXPECT_EQ(
      directories(),
      (json{{{"path", scratch}, {"state", "readable"}, {"detail", ""}},
            {{"path", "/no/such"}, {"state", "missing"}, {"detail", "No such file or directory"}},
            {{"path", file}, {"state", "not_a_directory"}, {"detail", "Not a directory"}},
            {{"path", pattern}, {"state", "missing"}, {"detail", "no user has one"}}}));
  std::filesystem::create_directory(scratch + "/of-1001");
  std::filesystem::create_directory(scratch + "/of-nobody");
  EXPECT_EQ(directories()[3],
            (json{{"path", pattern}, {"state", "readable"}, {"detail", "1 of users"}}));
}

// A loop of links cannot be opened by anybody: root, who runs tests, may read all else.
TEST_F(NodeJsonTest, SaysWhyADirectoryCannotBeRead) {
  const std::string scratch = NewDirectory();
  const std::string loop = scratch + "/loop";
  std::filesystem::create_symlink(loop, loop);
  const DaemonFacts facts{
      .node_name = "n1", .telemetry_path = "/metrics", .segment_directories = {loop}};
  const json directory = json::parse(NodeJson(node_, judge_, facts))["directories"][0];
  EXPECT_EQ(directory["state"], "unreadable");
  EXPECT_EQ(directory["detail"], "Too many levels of symbolic links");
}

TEST_F(NodeJsonTest, GivesTheNumbersOfRanksWhereTheyAreProven) {
  node_.processes[0].numbers = {.global_rank = 3, .local_rank = 1, .world_size = 8};
  EXPECT_EQ(Answer(node_, judge_)["processes"][0]["global_rank"], "3");
  EXPECT_EQ(Answer(node_, judge_)["processes"][0]["local_rank"], "1");
  node_.processes[0].numbers = {};
  EXPECT_EQ(Answer(node_, judge_)["processes"][0]["global_rank"], "");
  EXPECT_EQ(Answer(node_, judge_)["processes"][0]["local_rank"], "");
}

// Regression: ranks without room were missing.
TEST_F(NodeJsonTest, NamesTheMissingAndThoseWithoutRoomWhereAllRanksLiveOnThisNode) {
  const json absent({0, 1, 2, 4, 5, 6, 7});
  const auto expect = [&](uint64_t unread, uint64_t without_slot, bool may_lack_room) {
    node_.processes[0].unread_in_use = unread;
    node_.processes[0].losses[static_cast<size_t>(Loss::kNoFreeCommunicatorSlot)] = without_slot;
    answer_ = Answer(node_, judge_);
    EXPECT_EQ(Communicator("world")["missing_ranks"], may_lack_room ? json::array() : absent);
    EXPECT_EQ(Communicator("world")["no_room_ranks"], may_lack_room ? absent : json::array());
  };
  expect(0, 0, false);
  expect(3, 0, true);
  expect(0, 1, true);
}

TEST_F(NodeJsonTest, TextOfOtherProcessesIsValidUtf8) {
  EXPECT_EQ(Communicator("back\\slash \"quoted\"\xEF\xBF\xBDline \xEF\xBF\xBD").at("comm"),
            "000000000000feed");
}

TEST_F(NodeJsonTest, SumsLossesByCause) {
  ASSERT_EQ(answer_["losses"].size(), 3u);
  EXPECT_EQ(answer_["losses"][0]["reason"], "in_flight_full");
  EXPECT_EQ(answer_["losses"][0]["kind"], "dropped");
  EXPECT_EQ(answer_["losses"][0]["count"], 2);
}

TEST_F(NodeJsonTest, NamesFilesThatCannotBeUsedAndTheirOwners) {
  collector::NodeSnapshot node;
  node.segment_troubles = {{.error = collector::SegmentError::kBadMagic,
                            .uid = 1001,
                            .count = 3,
                            .file = "/run/nccl-exporter/a\nb.seg",
                            .file_uid = 1001,
                            .detail = "not a segment",
                            .realtime_ns = 5'000'000'000,
                            .present = 1}};
  const json troubles = Answer(node, NodeJudge())["segment_troubles"];
  EXPECT_EQ(troubles, json::parse(R"([{"reason": "bad_magic", "count": 3, "present": 1, "uid": 1001,
      "file": "/run/nccl-exporter/a\ufffdb.seg", "detail": "not a segment", "time": 5.0}])"));
  node.segment_troubles[0].file = "/run/nccl-exporter/" + std::string(251, 'x') + ".seg";
  EXPECT_EQ(Answer(node, NodeJudge())["segment_troubles"][0]["file"], node.segment_troubles[0].file)
      << "as long as a name may be";
  EXPECT_EQ(Answer({}, NodeJudge())["segment_troubles"], json::array());
}

TEST(NodeJsonOfNothingTest, IsAnObjectWithEmptyLists) {
  const json answer = Answer({}, NodeJudge());
  EXPECT_EQ(answer["processes"], json::array());
  EXPECT_EQ(answer["communicators"], json::array());
  EXPECT_EQ(answer["history"]["times"], json::array());
}

void CollectFields(const json& value, std::set<std::string>& fields) {
  if (!value.is_structured()) return;
  for (const auto& [name, inner] : value.items()) {
    if (value.is_object()) fields.insert(name);
    if (name != "segment_errors" && name != "uncompared_operations") CollectFields(inner, fields);
  }
}

TEST_F(NodeJsonTest, TheClientReadsTheAnswerOfFindings) {
  const std::string scratch = NewDirectory();
  node_.processes[0].is_alive = false;
  const std::string answer = FindingsAnswer(node_, judge_,
                                            {.node_name = "n1",
                                             .telemetry_path = "/metrics",
                                             .start_realtime_ns = kStepNs,
                                             .segment_directories = {scratch}});
  std::string fault;
  const std::optional<ReceivedFindings> received = FindingsFromJson(answer, fault);
  ASSERT_TRUE(received) << fault << answer;
  EXPECT_EQ(received->start_realtime_ns, kStepNs);
  EXPECT_EQ(received->watches, WatchedDirectoriesOf({scratch}));
  const Judgement judgement = judge_.Judge(node_);
  ASSERT_FALSE(judgement.findings.empty());
  ASSERT_EQ(received->judgement.findings.size(), judgement.findings.size());
  EXPECT_EQ(json(FindingsJson(received->judgement)), json(FindingsJson(judgement)));
}

TEST_F(NodeJsonTest, CommandsAddWhoseJudgementItIs) {
  Judgement judgement = judge_.Judge(node_);
  judgement.findings.resize(1);
  judgement.findings[0].kind = FindingKind::kCount;
  const json fields = json::parse(NodeFields(node_, judge_.history(), judgement,
                                             {.node_name = "n1", .telemetry_path = "/metrics"},
                                             {{"by", "command"}}));
  EXPECT_EQ(fields["judged"], (json{{"by", "command"}}));
  EXPECT_EQ(fields["findings"][0]["kind"], "other") << "a finding of a newer daemon";
  json without = fields;
  without.erase("judged");
  for (const auto& [name, value] : answer_.items()) EXPECT_TRUE(without.contains(name)) << name;
  EXPECT_EQ(without.size(), answer_.size());
}

// Numbers of findings, which differ by kind.
constexpr std::array kNumbers{"lost_gpus",        "gpus",      "lost_share",     "last_share",
                              "lateness_seconds", "processes", "ended_processes"};

template <typename Id>
std::vector<std::string> NamesOf(const CodeTable<Id>& rows) {
  std::vector<std::string> names;
  for (const CodeRow<Id>& row : rows) names.emplace_back(row.name);
  return names;
}

TEST_F(NodeJsonTest, TheSchemaHasTheKindsStandingsSeveritiesAndFieldsOfFindings) {
  std::ifstream file("docs/findings.schema.json");
  const json schema = json::parse(file), parts = schema["$defs"];
  EXPECT_EQ(parts["kind"]["anyOf"][0]["enum"], json(NamesOf(kFindingKinds)));
  EXPECT_EQ(parts["standing"]["anyOf"][0]["enum"], json(NamesOf(kStandings)));
  EXPECT_EQ(parts["finding"]["properties"]["severity"]["enum"], json(NamesOf(kSeverities)));
  Judgement judgement;
  judgement.findings.emplace_back().culprits.emplace_back();
  const json finding = json(FindingsJson(judgement))[0];
  const auto names = [](const json& object) {
    std::set<std::string> found;
    for (const auto& [name, value] : object.items()) found.insert(name);
    return found;
  };
  EXPECT_EQ(names(finding), names(parts["finding"]["properties"]));
  EXPECT_EQ(names(finding), parts["finding"]["required"].get<std::set<std::string>>());
  EXPECT_EQ(names(finding["culprits"][0]), names(parts["rank"]["properties"]));
  const json answer = json::parse(FindingsAnswer(
      node_, judge_, {.node_name = "n1", .telemetry_path = "/metrics", .segment_directories = {}}));
  EXPECT_EQ(names(answer), names(schema["properties"]));
  for (const char* const number : kNumbers)
    EXPECT_TRUE(parts["finding"]["properties"]["numbers"]["properties"].contains(number));
}

TEST_F(NodeJsonTest, EveryFieldIsDocumented) {
  std::ifstream file("docs/api.md");
  std::stringstream text;
  text << file.rdbuf();
  std::set<std::string> fields;
  for (const char* part : {"history", "segments", "losses", "processes", "communicators", "links",
                           "exporter", "looked_at", "directories"}) {
    CollectFields(answer_[part], fields);
  }
  for (const auto& [name, value] : answer_.items()) fields.insert(name);
  Judgement judgement;
  judgement.findings.emplace_back();
  judgement.findings[0].culprits.emplace_back();
  judgement.findings[0].evidence.emplace_back("name", "value");
  judgement.findings[0].collect.emplace_back("what", "command");
  for (const char* const number : kNumbers) judgement.findings[0].numbers.emplace_back(number, 1);
  CollectFields(json(FindingsJson(judgement)), fields);
  const json findings = json::parse(FindingsAnswer(
      node_, judge_, {.node_name = "n1", .telemetry_path = "/metrics", .segment_directories = {}}));
  CollectFields(findings["watches"], fields);
  for (const auto& [name, value] : findings.items()) fields.insert(name);
  EXPECT_GT(fields.size(), 85u);
  for (const std::string& field : fields)
    EXPECT_THAT(text.str(), testing::HasSubstr('`' + field + '`'));
}

}  // namespace
}  // namespace nccl_exporter::exporter
