// SPDX-License-Identifier: Apache-2.0
// Whom `nccl-exporter job` names where others wait, run, have ended or are late.
#include "exporter/cli/job/named_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "exporter/cli/job/recorded_job.h"

namespace nccl_exporter::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int> Ranks(int first, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

TEST(EarlierKnownTest, ATimeThatIsNotKnownIsNotTheEarlier) {
  EXPECT_EQ(EarlierKnown(0, 5), 5);
  EXPECT_EQ(EarlierKnown(5, 0), 5);
  EXPECT_EQ(EarlierKnown(7, 5), 5);
  EXPECT_EQ(EarlierKnown(0, 0), 0);
}

class NamedRanksTest : public testing::Test, public RecordedJob {
 protected:
  NamedRanksTest() {
    AddJob({{"nccl_job", "4711"}, {"uid", "1000"}}, 8);
    Add("process:nccl_busy_seconds:rate{", {}, 8);
  }

  // Global ranks, with what is said of each.
  std::vector<std::string> In(const char* list) {
    std::vector<std::string> ranks;
    const nlohmann::json json = nlohmann::json::parse(Text({.is_json = true}));
    for (const nlohmann::json& rank : json[list]) {
      const std::string name = rank[rank["rank"] == "" ? "hostname" : "global_rank"];
      ranks.push_back(name + ": " + rank["state"].get<std::string>());
    }
    return ranks;
  }
  std::vector<std::string> Named() { return In("named"); }
  std::vector<std::string> Perhaps() { return In("perhaps"); }
  std::string StateOf(const std::string& communicator) {
    const nlohmann::json json = nlohmann::json::parse(Text({.is_json = true}));
    for (const nlohmann::json& one : json["communicators"]) {
      if (one["comm"] == communicator) return one["state"];
    }
    return "none";
  }
};

// Rank 0 runs ahead by one call, rank 2 is in the call before, and rank 3 never calls: the others
// have started fewer operations than rank 0, too.
TEST_F(NamedRanksTest, RanksThatWaitAreNotNamedThoughAnotherIsAheadOfThem) {
  AddCommunicator("a", "dp", Ranks(0, 4), 0);
  Quiet("a", {0}, 102, 2, "AllReduce");
  Quiet("a", {1, 2}, 101, 1, "AllReduce");
  Quiet("a", {3}, 100, 0);
  Wait("a", {0, 1, 2});
  IsCulprit("a", 3, 2);
  Fire("NCCLHangCulprit", "critical", RankOf("a", 3));
  EXPECT_THAT(Named(), ElementsAre("3: behind by 2"));
  EXPECT_THAT(Perhaps(), IsEmpty());
  EXPECT_EQ(StateOf("a"), "waits");
}

// The alert is one for all communicators of the culprit.
TEST_F(NamedRanksTest, ACulpritWithoutACommunicatorIsOneRankOfAllInWhichItIsWaitedFor) {
  AddCommunicator("a", "dp", Ranks(0, 4), 0);
  AddCommunicator("b", "tp", Ranks(0, 4), 0);
  for (const char* const id : {"a", "b"}) {
    Quiet(id, {0, 1, 2}, 101, 1, "AllReduce");
    Quiet(id, {3}, 100, 0);
    Wait(id, {0, 1, 2});
    IsCulprit(id, 3, 1);
  }
  Labels culprit = RankOf("a", 3);
  for (const char* const label : {"comm", "comm_name", "rank"}) culprit.erase(label);
  Fire("NCCLHangCulprit", "critical", culprit);
  EXPECT_THAT(Named(), ElementsAre("3: behind by 1"));
  EXPECT_THAT(Perhaps(), IsEmpty());
  EXPECT_THAT(Text(), HasSubstr("NCCLHangCulprit: global rank 3 (GPU 3) on node-0, for 8 min\n"));
  EXPECT_THAT(Text(), HasSubstr("global rank 3   behind by 1  8 min  dp and 1 more"));
}

// Pairs of data parallel ranks without known completions: rank 1 of each pair is behind, since it
// waits for rank 7 in its own group, and no completion is seen.
TEST_F(NamedRanksTest, VictimsInPairsAreNotNamedWhereNoCompletionIsSeen) {
  AddCommunicator("tp", "tp", Ranks(4, 4), 0);
  Quiet("tp", {0, 1, 2}, 51, std::nullopt);
  Quiet("tp", {3}, 50, std::nullopt);
  Wait("tp", {0, 1, 2});
  for (int pair = 0; pair < 4; ++pair) {
    const std::string id = "dp" + std::to_string(pair);
    AddCommunicator(id, "dp", {pair, 4 + pair}, 0);
    Quiet(id, {0}, 101, std::nullopt);
    Quiet(id, {1}, 100, std::nullopt);
    Wait(id, {0});
  }
  IsCulprit("tp", 3, 1);
  IsCulprit("dp3", 1, 1);
  Fire("NCCLHangCulprit", "critical", RankOf("tp", 3));
  Fire("NCCLHangCulprit", "critical", RankOf("dp3", 1));
  EXPECT_THAT(Named(), ElementsAre("7: behind by 1"));
  EXPECT_THAT(Perhaps(), IsEmpty());
  EXPECT_THAT(Text(), HasSubstr("global rank 7   behind by 1  8 min  tp and 1 more"));
  for (const char* const id : {"tp", "dp0", "dp1", "dp2", "dp3"}) EXPECT_EQ(StateOf(id), "waits");
}

// In the first minutes of a hang, and where the rules find nobody behind.
TEST_F(NamedRanksTest, WhoWaitsWithoutACulpritIsNotWell) {
  AddCommunicator("a", "dp", Ranks(0, 4), 0);
  Quiet("a", {0, 1, 2}, 101, 1, "AllReduce");
  Quiet("a", {3}, 100, 0);
  EXPECT_EQ(StateOf("a"), "in_operation");
  EXPECT_THAT(Text(), HasSubstr("3 ranks in AllReduce"));
  Wait("a", {0, 1, 2});
  EXPECT_THAT(Named(), IsEmpty());
  EXPECT_THAT(Text(), HasSubstr("3 processes wait. No alert names a rank that they wait for.\n"));
  // Seen in one evaluation only.
  IsCulprit("a", 3, 1);
  EXPECT_THAT(Named(), IsEmpty());
  EXPECT_THAT(Text(), HasSubstr("Perhaps late or behind, but no alert names them:\n"
                                "global rank 3 (GPU 3) on node-0 in dp: behind by 1\n"));
}

// Detail of a minute ago has other counts for each node; the rules have seen it move.
TEST_F(NamedRanksTest, ACommunicatorThatIsUsedEveryTwentySecondsIsNotBehind) {
  AddCommunicator("a", "dp", Ranks(0, 8), 12);
  Quiet("a", Ranks(0, 4), 103, 0);
  Quiet("a", Ranks(4, 4), 102, 0);
  Add("(nccl_collective_started_sequence{", {{"comm", "a"}}, 100);
  Add("(nccl_operations_last_progress_timestamp_seconds{",
      {{"comm", "a"}, {"instance", "node-0:9828"}}, kNow - 75);
  EXPECT_THAT(Named(), IsEmpty());
  EXPECT_THAT(Perhaps(), IsEmpty());
  EXPECT_EQ(StateOf("a"), "idle");
  EXPECT_THAT(Text(), HasSubstr("      103    -  idle\n"));
}

TEST_F(NamedRanksTest, WhatIsNotKnownIsNeitherIdleNorUnused) {
  AddCommunicator("b", "untimed", Ranks(0, 4), 0);
  AddCommunicator("a", "new", Ranks(0, 4), std::nullopt);
  EXPECT_EQ(StateOf("a"), "unknown") << "no rule has seen it";
  EXPECT_EQ(StateOf("b"), "unknown") << "no alert series";
  Quiet("b", Ranks(0, 4), 7, std::nullopt);
  EXPECT_EQ(StateOf("b"), "unknown") << "completion is not seen";
  AddCommunicator("c", "busy", Ranks(0, 4), 3);
  Quiet("c", Ranks(0, 4), 7, std::nullopt);
  EXPECT_EQ(StateOf("c"), "moves");
  AddCommunicator("d", "idle", Ranks(0, 4), 0);
  Quiet("d", Ranks(0, 4), 7, 0);
  EXPECT_EQ(StateOf("d"), "idle");
  AddCommunicator("e", "unused", Ranks(0, 4), 0);
  Quiet("e", Ranks(0, 4), 0, 0);
  EXPECT_EQ(StateOf("e"), "not_used");
  AddCommunicator("f", "unused and untimed", Ranks(0, 4), 0);
  Quiet("f", Ranks(0, 4), 0, std::nullopt);
  EXPECT_EQ(StateOf("f"), "not_used");
}

// Regression: 20 lines of ranks with lower numbers came before it.
TEST_F(NamedRanksTest, TheCulpritAmongThousandsOfRanksComesFirst) {
  AddCommunicator("a", "world", Ranks(0, 4096), 0);
  for (int group = 0; group < 64; ++group)
    AddCommunicator("dp" + std::to_string(group), "dp", Ranks(64 * group, 64), 0);
  Wait("a", Ranks(0, 3000));
  Wait("a", Ranks(3001, 1095));
  for (int rank = 0; rank < 40; ++rank) {
    Fire("NCCLStragglerRank", "warning", RankOf("a", rank), kNow - 9000);
    Halt(100 + rank);
  }
  IsCulprit("a", 3000, 5);
  Fire("NCCLHangCulprit", "critical", RankOf("a", 3000));
  EXPECT_EQ(Named().front(), "3000: behind by 5");
  const std::string text = Text();
  const size_t table = text.find("LATE OR BEHIND");
  EXPECT_EQ(text.find("global rank 3000  behind by 5  8 min  world  "), text.find('\n', table) + 1)
      << text;
  EXPECT_THAT(text, HasSubstr("41 alerts fire:\nNCCLHangCulprit: global rank 3000 (GPU 0) on "));
  EXPECT_THAT(text, HasSubstr("21 further ranks: --json has all\n"));
}

// Regression: they filled the 20 lines.
TEST_F(NamedRanksTest, DeadRanksOfAnOldAttemptAreLeftOut) {
  for (int i = 0; i < 12; ++i) {
    AddCommunicator("old" + std::to_string(i), "old", Ranks(0, 8), 0);
    Quiet("old" + std::to_string(i), Ranks(0, 8), 500, 1, "AllReduce");
    AddCommunicator("new" + std::to_string(i), "new", Ranks(8, 8), 0);
    Quiet("new" + std::to_string(i), Ranks(0, 7), 41, 1, "AllReduce");
    Wait("new" + std::to_string(i), Ranks(0, 7));
    IsCulprit("new" + std::to_string(i), 7, 1);
    Fire("NCCLHangCulprit", "critical", RankOf("new" + std::to_string(i), 7));
  }
  for (int rank = 0; rank < 8; ++rank) {
    Halt(rank);
    Ended(rank);
  }
  EXPECT_THAT(Named(), ElementsAre("15: behind by 1"));
  EXPECT_EQ(StateOf("old3"), "ended");
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("16 processes on 4 nodes in 24 communicators, 8 ended.\n"));
  EXPECT_THAT(text, HasSubstr("1 alert fires:\nNCCLHangCulprit: global rank 15 (GPU 3) on node-3 "
                              "in new and 11 more, for 8 min\n"));
  EXPECT_THAT(text, HasSubstr("global rank 15  behind by 1  8 min  new and 11 more "));
}

TEST_F(NamedRanksTest, ADeadRankIsNamedOnceWhereALivingOneNeedsIt) {
  for (int i = 0; i < 12; ++i) {
    AddCommunicator(std::to_string(i), "dp", Ranks(0, 8), 0);
    Quiet(std::to_string(i), Ranks(0, 8), 500, 1, "AllReduce");
  }
  Halt(2);
  EXPECT_THAT(Named(), IsEmpty()) << "nothing moves and nobody waits";
  EXPECT_THAT(Text(), HasSubstr("1 ended or stopped.\n"));
  EXPECT_THAT(Text(), HasSubstr("\nNo alert names a rank.\n"));
  for (int i = 0; i < 12; ++i) Wait(std::to_string(i), {0, 1, 3, 4, 5, 6, 7});
  EXPECT_THAT(Named(), ElementsAre("2: ended or stopped"));
  Stopped(2);
  EXPECT_THAT(Named(), ElementsAre("2: stopped"));
  EXPECT_THAT(Text(), HasSubstr("global rank 2   stopped    -  dp and 11 more "));
  Forget("comm_rank:nccl_hang:waiting{");
  Forget("comm:nccl_progress:changes{");
  Add("comm:nccl_progress:changes{", {{"comm", "5"}}, 4);
  Ended(2);
  EXPECT_THAT(Named(), ElementsAre("2: ended")) << "the others go on";
}

// A hung job is killed process by process.
TEST_F(NamedRanksTest, ARankThatWaitedAndThenDiedIsNotNamed) {
  AddCommunicator("a", "dp", Ranks(0, 8), 0);
  Quiet("a", Ranks(0, 8), 500, 1, "AllReduce");
  Wait("a", {0, 1, 2, 4, 5, 6, 7});
  for (const int rank : {0, 1, 2}) Halt(rank);
  Fire("NCCLHangCulprit", "critical", RankOf("a", 3));
  EXPECT_THAT(Named(), ElementsAre("3: NCCLHangCulprit")) << "the alert is held";
  EXPECT_THAT(Text(), HasSubstr("4 ranks wait in AllReduce"));
}

// The last one writes its results.
TEST_F(NamedRanksTest, RanksThatEndBeforeAnotherThatIsIdleAreNotNamed) {
  AddCommunicator("a", "dp", Ranks(0, 8), 40);
  for (int rank = 1; rank < 8; ++rank) Halt(rank);
  EXPECT_EQ(Named().size(), 7u) << "the other one goes on";
  Quiet("a", Ranks(0, 8), 500, 0);
  EXPECT_THAT(Named(), IsEmpty());
  EXPECT_THAT(Text(), HasSubstr("7 ended or stopped.\n"));
}

TEST_F(NamedRanksTest, DetailThatIsOldDoesNotStopAProcess) {
  AddCommunicator("a", "dp", Ranks(0, 8), 12);
  Stopped(2);
  EXPECT_THAT(Named(), IsEmpty());
}

TEST_F(NamedRanksTest, AllThatHasEndedIsSaid) {
  AddCommunicator("a", "dp", Ranks(0, 2), 0);
  Halt(0);
  Halt(1);
  EXPECT_THAT(Text(), HasSubstr("\nAll processes have ended or are stopped.\n"));
  Ended(0);
  Ended(1);
  EXPECT_THAT(Text(), HasSubstr("\nAll processes have ended.\n"));
}

// Its node is gone: no daemon has it.
TEST_F(NamedRanksTest, AMissingRankIsNamed) {
  AddCommunicator("a", "dp", Ranks(0, 8), 0);
  const Labels place = RankOf("a", 6);
  Forget("(nccl_rank_info{c");
  for (int rank = 0; rank < 8; ++rank) {
    if (rank / 4 == 0) Add("(nccl_rank_info{c", RankOf("a", rank));
  }
  Add("comm_rank:nccl_hang:culprit{", place, 0);
  Fire("NCCLHangCulprit", "critical", place);
  Fire("NCCLRanksMissing", "warning", place);
  Add("comm_rank:nccl_rank:missing{", place);
  Add("ALERTS{alertstate=\"firing\",alertname=~\"NCCLExporter(",
      {{"alertname", "NCCLExporterDown"}, {"instance", "node-1:9828"}});
  EXPECT_THAT(Named(), ElementsAre("6: not reported"));
  EXPECT_THAT(Text(), HasSubstr("NCCLExporterDown: node-1:9828\n"));
  EXPECT_THAT(Text(), HasSubstr("1 communicator has ranks that are not reported"));
}

TEST_F(NamedRanksTest, AnotherCallIsNamedWithItsName) {
  AddCommunicator("a", "dp", Ranks(0, 8), 0);
  Wait("a", Ranks(0, 8));
  Labels place = RankOf("a", 5);
  place["function"] = "AllGather";
  Fire("NCCLHangMismatchedCall", "critical", place);
  EXPECT_THAT(Named(), ElementsAre("5: in another call (AllGather)"));
}

// One evaluation of a rule proves nothing: the alert asks for more.
TEST_F(NamedRanksTest, ALateRankIsOneThatAnAlertNames) {
  AddCommunicator("a", "world", Ranks(0, 16), 90);
  IsLate("a", 5, 0.1064);
  EXPECT_THAT(Named(), IsEmpty());
  EXPECT_THAT(Perhaps(), ElementsAre("5: late 10.6 %"));
  EXPECT_THAT(Text(), HasSubstr("Perhaps late or behind, but no alert names them:\n"
                                "global rank 5 (GPU 1) on node-1 in world: late 10.6 %\n"));
  Fire("NCCLStragglerRank", "warning", RankOf("a", 5));
  EXPECT_THAT(Named(), ElementsAre("5: late 10.6 %"));
  EXPECT_THAT(Perhaps(), IsEmpty());
  Forget("comm_rank:nccl_straggler:proved{");
  EXPECT_THAT(Named(), ElementsAre("5: late")) << "the alert is held";
  Fire("NCCLLastArriver", "warning", RankOf("a", 9));
  EXPECT_THAT(Named(), ElementsAre("5: late", "9: arrives last"));
}

TEST_F(NamedRanksTest, ALateNodeIsNamedInPlaceOfItsRanks) {
  AddCommunicator("a", "world", Ranks(0, 16), 90);
  const Labels node{{"comm", "a"}, {"instance", "node-2:9828"}, {"hostname", "node-2"}};
  Add("comm_node:nccl_straggler:proved{", node, 0.2);
  IsLate("a", 9, 0.2);
  EXPECT_THAT(Perhaps(), ElementsAre("node-2: late 20.0 %", "9: late 20.0 %"));
  Fire("NCCLStragglerNode", "warning", node);
  EXPECT_THAT(Named(), ElementsAre("node-2: late 20.0 %"));
  EXPECT_THAT(Perhaps(), IsEmpty());
  EXPECT_THAT(Text(), HasSubstr("node node-2     late 20.0 %  8 min  "));
}

TEST_F(NamedRanksTest, TheOrderIsAlertsThenDeadOnesThenTheFurthestBehind) {
  AddCommunicator("a", "world", Ranks(0, 16), 0);
  Wait("a", {0, 1, 2, 3});
  for (const int rank : {4, 5, 6}) {
    IsCulprit("a", rank, rank);
    Fire("NCCLHangCulprit", "critical", RankOf("a", rank));
  }
  Halt(6);
  Halt(9);
  IsLate("a", 10, 0.1);
  Fire("NCCLStragglerRank", "warning", RankOf("a", 10));
  EXPECT_THAT(Named(), ElementsAre("6: ended or stopped, behind by 6", "5: behind by 5",
                                   "4: behind by 4", "10: late 10.0 %", "9: ended or stopped"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
