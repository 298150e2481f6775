// SPDX-License-Identifier: Apache-2.0
// JSON of `top` and `inflight`.
#include "exporter/cli/node_in_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

class NodeInJsonTest : public testing::Test {
 protected:
  NodeInJsonTest() {
    for (uint64_t rank = 0; rank < 2; ++rank) {
      node_.processes.push_back(EmptyProcess(100 + rank));
      collector::CommunicatorSnapshot communicator = EmptyCommunicator(0xabcdef, rank);
      communicator.name = "d\xffp";
      communicator.completion_is_known = true;
      communicator.started_sequence = 9 - rank;
      node_.processes.back().communicators.push_back(communicator);
    }
    node_.taken_realtime_ns = 1700000010500000000;
    node_.processes[0].communicators[0].in_flight = {{.function = Function::kAllReduce,
                                                      .sequence = 9,
                                                      .start_realtime_ns = 1700000000000000000,
                                                      .bytes = 4096}};
    node_.processes[1].is_stopped = true;
    judgement_.communicators = 1;
    FoundRank culprit;
    culprit.standing = Standing::kStopped;
    culprit.rank = 1;
    culprit.pid = 101;
    Finding hang;
    hang.severity = Severity::kCritical;
    hang.communicator = CommunicatorsOnNode(node_).front().key;
    hang.culprits = {culprit};
    hang.headline = "It waits for rank 1";
    judgement_.findings = {hang};
  }

  ShownJudgement OwnJudgement() const {
    return {.judgement = judgement_,
            .since_realtime_ns = node_.taken_realtime_ns,
            .why_not_of_daemon = "no daemon at 127.0.0.1:9828"};
  }

  collector::NodeSnapshot node_;
  Judgement judgement_;
};

TEST_F(NodeInJsonTest, TopHasFindingsAndRanksWithTheCulpritFirst) {
  const json top = json::parse(TopJson(node_, {}, OwnJudgement(), TopSort::kRank));
  EXPECT_EQ(top["taken"], 1700000010.5);
  EXPECT_EQ(top["judged"], (json{{"by", "command"},
                                 {"since", 1700000010.5},
                                 {"reason", "no daemon at 127.0.0.1:9828"}}));
  EXPECT_EQ(top["findings"][0]["headline"], "It waits for rank 1");
  EXPECT_EQ(top["looked_at"]["communicators"], 1);
  ASSERT_EQ(top["ranks"].size(), 2u);
  const json& culprit = top["ranks"][0];
  EXPECT_EQ(culprit["rank"], 1);
  EXPECT_EQ(culprit["state"], "stopped");
  EXPECT_EQ(culprit["behind"], 1);
  EXPECT_EQ(culprit["comm"], "0000000000abcdef");
  EXPECT_EQ(culprit["arrivals"], nullptr);
  EXPECT_EQ(top["idle_communicators_of_one_rank"], 0);
}

TEST_F(NodeInJsonTest, AFindingOfANewerDaemonIsOther) {
  judgement_.findings[0].kind = FindingKind::kCount;
  const json top = json::parse(TopJson(node_, {}, OwnJudgement(), TopSort::kRank));
  EXPECT_EQ(top["findings"][0]["kind"], "other");
}

TEST_F(NodeInJsonTest, InFlightHasCommunicatorsWithAbsoluteTimes) {
  const json in_flight = json::parse(InFlightJson(node_, OwnJudgement()));
  EXPECT_EQ(in_flight["judged"]["by"], "command");
  EXPECT_EQ(in_flight["findings"].size(), 1u);
  ASSERT_EQ(in_flight["communicators"].size(), 1u);
  const json& ranks = in_flight["communicators"][0]["local_ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0]["in_flight"][0]["sequence"], 9);
  EXPECT_EQ(ranks[0]["in_flight"][0]["start"], 1700000000.0);
  EXPECT_EQ(ranks[1]["stopped"], true);
  EXPECT_EQ(ranks[1]["in_flight"], json::array());
}

}  // namespace
}  // namespace nccl_exporter::exporter
