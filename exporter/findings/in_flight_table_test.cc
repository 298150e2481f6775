// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/in_flight_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "exporter/testing/example_snapshot.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kNow = 1700000100000000000;
constexpr int64_t kSecond = 1000000000;

// A node with one communicator of four ranks, each a process, and nothing in flight.
class InFlightTableTest : public testing::Test {
 protected:
  InFlightTableTest() {
    node_.taken_realtime_ns = kNow;
    for (uint64_t rank = 0; rank < 4; ++rank) Add(rank);
  }
  collector::CommunicatorSnapshot& Add(uint64_t rank, uint64_t id = 0xabc) {
    collector::ProcessSnapshot& process = node_.processes.emplace_back(EmptyProcess(1000 + rank));
    collector::CommunicatorSnapshot& communicator =
        process.communicators.emplace_back(EmptyCommunicator(id, rank));
    communicator.name = "world";
    communicator.ranks = 4;
    communicator.nodes = 1;
    communicator.completion_is_known = true;
    communicator.started_sequence = communicator.completed_sequence = 7;
    communicator.last_progress_realtime_ns = kNow - 3 * kSecond;
    return communicator;
  }
  collector::CommunicatorSnapshot& Of(size_t place) {
    return node_.processes.at(place).communicators.at(0);
  }
  void Start(size_t place, int64_t seconds_ago) {
    ++Of(place).started_sequence;
    Of(place).in_flight.push_back({.function = Function::kAllReduce,
                                   .sequence = 7,
                                   .start_realtime_ns = kNow - seconds_ago * kSecond,
                                   .bytes = 3 << 19});
  }
  std::string Text() const { return InFlightText(node_, NodeJudge().Judge(node_)); }

  collector::NodeSnapshot node_;
};

TEST_F(InFlightTableTest, ShowsWhoIsInWhatAndWhoIsBehind) {
  for (const size_t rank : {0, 1, 3}) Start(rank, 20 + static_cast<int64_t>(rank));
  EXPECT_EQ(Text(), R"(2023-11-14T22:15:00.000000000Z: 1 communicator, 1 with operations in flight
No hang found on 1 communicator; late ranks need the daemon's history.

communicator 0000000000000abc "world": 4 of 4 ranks here
  RANK  GPU   PID  STATE  STARTED  BEHIND  COMPLETED  IN FLIGHT  OLDEST          FOR  SINCE UTC     SIZE
     0    0  1000               8       -          7          1  AllReduce #7   20 s   22:14:40  1.5 MiB
     1    1  1001               8       -          7          1  AllReduce #7   21 s   22:14:39  1.5 MiB
     2    2  1002               7       1          7          0  idle          3.0 s   22:14:57        -
     3    3  1003               8       -          7          1  AllReduce #7   23 s   22:14:37  1.5 MiB
  furthest behind here, by 1: rank 2
)");
}

// Operator's trial B9: one line that says what is wrong.
TEST_F(InFlightTableTest, TheFindingIsOnTopAndItsCommunicatorFirst) {
  for (size_t rank = 0; rank < 4; ++rank) Add(rank, 0xdef);
  Start(4, 300);
  for (const size_t rank : {0, 1, 3}) Start(rank, 150);
  for (size_t place = 0; place < 4; ++place)
    Of(place).last_progress_realtime_ns = kNow - 150 * kSecond;
  node_.processes[4].is_alive = false;
  const std::string text = Text();
  EXPECT_THAT(text,
              HasSubstr(" in flight\nWarning: The job of user 1000 hangs since 22:12:30 UTC: "
                        "3 ranks wait for rank 2 of world (GPU 2, pid 1002, gpu-node-7), which "
                        "has not entered AllReduce #7 of world.\n  cost: "));
  EXPECT_LT(text.find("communicator 0000000000000abc"), text.find("communicator 0000000000000def"));
  EXPECT_THAT(text, HasSubstr("\n  collect: py-spy dump --pid 1002 "));
  EXPECT_THAT(text, HasSubstr("1002  missing call "));
  EXPECT_THAT(text, HasSubstr("1003  waits "));
}

TEST_F(InFlightTableTest, SaysWhichProcessIsStopped) {
  for (const size_t rank : {0, 1, 3}) Start(rank, 20);
  node_.processes[2].is_stopped = true;
  EXPECT_THAT(
      Text(),
      HasSubstr("\n     2    2  1002  stopped        7       1          7          0  idle"));
  EXPECT_THAT(Text(), HasSubstr("\n  process is stopped: rank 2\n"));
  node_.processes[2].is_alive = false;
  EXPECT_THAT(Text(), Not(HasSubstr("stopped")));
}

TEST_F(InFlightTableTest, NobodyIsBehindWhereAllAreInTheSame) {
  for (const size_t rank : {0, 1, 2, 3}) Start(rank, 400);
  EXPECT_THAT(Text(), Not(HasSubstr("furthest behind")));
  EXPECT_THAT(Text(), Not(HasSubstr("missing")));
}

TEST_F(InFlightTableTest, NamesTheMissingRanksOfANodeThatMustHaveAll) {
  node_.processes.erase(node_.processes.begin() + 1);
  EXPECT_THAT(Text(), HasSubstr("3 of 4 ranks here"));
  EXPECT_THAT(Text(), HasSubstr("\n  missing on this node, which has all ranks: rank 1\n"));
}

TEST_F(InFlightTableTest, OnlyCountsRanksThatMayBeElsewhere) {
  node_.processes.erase(node_.processes.begin() + 1);
  for (size_t place = 0; place < 3; ++place) Of(place).nodes = 2;
  EXPECT_THAT(Text(),
              HasSubstr("\n  not seen here: 1 of 4 ranks, on other nodes or without the plugin\n"));
}

// Regression: ranks without room were missing in the table, and not in the finding above it.
TEST_F(InFlightTableTest, RanksThatMayHaveNoRoomAreNotMissing) {
  node_.processes[1].communicators.clear();
  const std::string no_room = "\n  not seen here, where not all communicators have room: rank 1\n";
  node_.processes[1].unread_in_use = 1;
  EXPECT_THAT(Text(), HasSubstr(no_room));
  node_.processes[1].unread_in_use = 0;
  node_.processes[1].losses[static_cast<size_t>(Loss::kReservationFailed)] = 1;
  EXPECT_THAT(Text(), HasSubstr(no_room));
  EXPECT_THAT(Text(), Not(HasSubstr("missing")));
  for (const size_t place : {0, 2, 3}) Of(place).nodes = 2;
  EXPECT_THAT(Text(), HasSubstr("\n  not seen here: 1 of 4 ranks, on other nodes, without room or "
                                "without the plugin\n"));
}

TEST_F(InFlightTableTest, SaysSoWhereTheNumberOfRanksIsNotTold) {
  for (size_t place = 0; place < 4; ++place) Of(place).ranks = 0;
  EXPECT_THAT(Text(), HasSubstr("\n  this NCCL does not report the number of ranks\n"));
}

TEST_F(InFlightTableTest, AKilledProcessStillTellsWhatItWasIn) {
  Start(2, 30);
  node_.processes[2].is_alive = false;
  EXPECT_THAT(
      Text(),
      HasSubstr("1002  killed        8       -          7          1  AllReduce #7   30 s"));
  EXPECT_THAT(Text(), HasSubstr("\n  process has ended without finalizing: rank 2\n"));
}

TEST_F(InFlightTableTest, DoesNotCallWhatCannotBeSeenIdle) {
  Of(1).completion_is_known = false;
  EXPECT_THAT(Text(),
              HasSubstr("1001               7       -          ?          ?  not seen  3.0 s"));
}

TEST_F(InFlightTableTest, TheOldestOperationComesFirst) {
  Add(0, 0xdef);
  Start(4, 100);
  Start(0, 10);
  const std::string text = Text();
  EXPECT_LT(text.find("0000000000000def"), text.find("0000000000000abc"));
  EXPECT_THAT(text, HasSubstr(": 2 communicators, 2 with operations in flight\n"));
}

TEST_F(InFlightTableTest, JobsWithTheSameCommunicatorIdAreKeptApart) {
  node_.processes[0].identity = {{"SLURM_JOB_ID", "42"}};
  EXPECT_THAT(
      Text(),
      HasSubstr("communicator 0000000000000abc \"world\" of job \"42\": 1 of 4 ranks here\n"));
  EXPECT_THAT(Text(), HasSubstr("communicator 0000000000000abc \"world\": 3 of 4 ranks here\n"));
}

TEST_F(InFlightTableTest, AJobHasTheRoomThatTheNameLeaves) {
  const std::string job = "research/pretrain-70b-2026-11-continued-4";
  for (auto& process : node_.processes) process.identity = {{"SLURM_JOB_ID", job}};
  EXPECT_THAT(Text(), HasSubstr("\"world\" of job \"" + job + "\": 4 of 4 ranks here\n"));
}

TEST_F(InFlightTableTest, LeavesOutWhatIsFinalizedOrHasNoIdentity) {
  Of(0).is_closed = true;
  Of(1).has_identity = false;
  Of(2).is_overflow = true;
  EXPECT_THAT(Text(), HasSubstr("1 of 4 ranks here"));
}

TEST_F(InFlightTableTest, StaysWithin120ColumnsAndIsSafeOnATerminal) {
  for (const size_t rank : {0, 1, 2, 3}) Start(rank, 86400);
  Of(0).name = std::string(300, 'x') + "\x1b[2J";
  Of(1).name = "\x1b[2J";
  Of(0).started_sequence = 123456789;
  Of(0).completed_sequence = 123456700;
  Of(0).in_flight[0].sequence = 98765432;
  node_.processes[0].identity = {{"SLURM_JOB_ID", std::string(90, '7')}};
  const std::string text = Text();
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  std::istringstream lines(text.substr(text.find("\ncommunicator ")));  // findings are sentences
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

// C1 and turns of direction reach a terminal as valid UTF-8: CSI is U+009B, and U+202E turns what
// follows.
TEST_F(InFlightTableTest, TextsOfOtherProcessesAreShownAsTheyAre) {
  const std::string unseen = "\u009b2J\u0085\u202e\u2066\u200b\x9b";
  for (const size_t rank : {0, 1, 3}) Start(rank, 150);
  for (collector::ProcessSnapshot& process : node_.processes) {
    process.identity = {{"SLURM_JOB_ID", "4712" + unseen}, {"POD_NAME", "pod" + unseen}};
    process.host_name = "node" + unseen;
    process.communicators[0].name = "world" + unseen;
    process.communicators[0].last_progress_realtime_ns = kNow - 150 * kSecond;
  }
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\"world\uFFFD2J"));
  EXPECT_THAT(text, HasSubstr("hangs"));
  for (const char* const character : {"\u009b", "\u0085", "\u202e", "\u2066", "\u200b", "2J\x9b"})
    EXPECT_THAT(text, Not(HasSubstr(character)));
  EXPECT_EQ(text, ValidUtf8(text, std::string::npos, "\n")) << "only line feeds are unseen";
}

// Where nothing is found, the sentence does not say more than was looked at.
TEST(NothingFoundTest, SaysWhatIsNotJudgedAndWhoDoes) {
  Judgement judgement{.findings = {},
                      .seconds = 60,
                      .communicators = 3,
                      .compared_operations = 240,
                      .learning_seconds = 0};
  const std::string looked =
      "Nothing found in the last 60 s: 3 communicators, 240 operations compared.";
  EXPECT_EQ(FindingsText(judgement), looked +
                                         " Not judged here: bandwidth. The alerts do: see "
                                         "nccl-exporter report.\n");
  judgement.across_nodes = 1;
  EXPECT_EQ(FindingsText(judgement),
            looked +
                " Not judged here: bandwidth, and the network of 1 communicator across nodes. "
                "The alerts do: see nccl-exporter report.\n");
  judgement.across_nodes = 2;
  judgement.learning_seconds = 30;
  EXPECT_EQ(FindingsText(judgement),
            looked +
                " Late ranks can be found in 30 s. Not judged here: bandwidth, and the network "
                "of 2 communicators across nodes. The alerts do: see nccl-exporter report.\n");
}

// Regression: a slow network between nodes was green, and nothing said that it was not judged.
TEST_F(InFlightTableTest, CommunicatorsAcrossNodesAreThoseWhoseNetworkIsNotJudged) {
  EXPECT_EQ(NodeJudge().Judge(node_).across_nodes, 0u);
  for (size_t place = 0; place < 4; ++place) Of(place).nodes = 2;
  EXPECT_EQ(NodeJudge().Judge(node_).across_nodes, 1u);
  for (uint64_t rank = 0; rank < 4; ++rank) Add(rank, 0xdef).nodes = 0;
  EXPECT_EQ(NodeJudge().Judge(node_).across_nodes, 1u) << "not known";
}

TEST_F(InFlightTableTest, SaysWhenThereIsNothing) {
  node_.processes.clear();
  node_.segments.unusable = 2;
  EXPECT_EQ(Text(),
            "2023-11-14T22:15:00.000000000Z: 0 communicators, 0 with operations in flight\n"
            "No communicator is in use.\n"
            "2 files cannot be read as segments\n");
}

}  // namespace
}  // namespace nccl_exporter::exporter
