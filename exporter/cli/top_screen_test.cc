// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/node_judge.h"
#include "exporter/testing/example_snapshot.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecondNs = 1000000000;

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Four ranks that reduce once a second, the last one late.
class TopScreenTest : public testing::Test {
 protected:
  TopScreenTest() {
    for (uint64_t rank = 0; rank < 4; ++rank) {
      node_.processes.push_back(EmptyProcess(100 + rank));
      node_.processes.back().segment = std::to_string(rank);
      collector::CommunicatorSnapshot communicator = EmptyCommunicator(0xabcdef, rank);
      communicator.name = "dp";
      communicator.completion_is_known = true;
      communicator.started_sequence = rank == 1 ? 7 : 9;
      node_.processes.back().communicators.push_back(communicator);
    }
    node_.segments.live = 4;
    node_.taken_realtime_ns = 1700000010 * kSecondNs;
    for (uint64_t step = 0; step < 3; ++step) {
      node_.taken_realtime_ns += kSecondNs;
      for (uint64_t rank = 0; rank < 4; ++rank) {
        AddOperation(Rank(rank), Function::kAllReduce, 1 << 20, 2000000 + step * 2000000);
        Rank(rank).arrivals =
            collector::ArrivalCounts{.compared = step * 10,
                                     .last = rank == 3 ? step * 10 : 0,
                                     .lateness_ns = rank == 3 ? step * kSecondNs / 10 : 0};
      }
      history_.Record(BookOf(node_), node_.taken_realtime_ns);
    }
    Rank(2).in_flight = {{.function = Function::kAllReduce,
                          .sequence = 9,
                          .start_realtime_ns = node_.taken_realtime_ns - 45 * kSecondNs}};
  }

  collector::CommunicatorSnapshot& Rank(size_t rank) {
    return node_.processes[rank].communicators[0];
  }
  std::string Text(TopView view) { return TopScreen(node_, history_, judgement_, view); }
  std::vector<std::string> Screen(const TopView& view) { return LinesOf(Text(view)); }
  // Ranks in the order of the table.
  std::string Order() {
    std::string ranks;
    bool is_table = false;
    for (const std::string& line : Screen({})) {
      if (is_table) ranks += line.substr(line.find_first_of("0123456789"), 1);
      is_table |= line.find("RANK") != std::string::npos;
    }
    return ranks;
  }

  collector::NodeSnapshot node_;
  NodeHistory history_;
  Judgement judgement_{.findings = {},
                       .seconds = 3,
                       .communicators = 1,
                       .compared_operations = 0,
                       .learning_seconds = 0};
};

TEST_F(TopScreenTest, ShowsRatesAndMeans) {
  const std::string text = Text({});
  EXPECT_THAT(text, testing::HasSubstr("4 processes  1 communicator  the job of user 1000\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex("dp +AllReduce +1.00 /s +1.05 MB/s +5.00 ms +367 MB/s\n"));
}

// Regression, and A6 of the operator's trial: with a late rank the bandwidth sank, as if a link
// were broken.
TEST_F(TopScreenTest, TheBandwidthIsThatOfTheRankThatWaitsForNobody) {
  node_.taken_realtime_ns += 10 * kSecondNs;
  for (uint64_t rank = 0; rank < 4; ++rank)
    AddOperation(Rank(rank), Function::kAllReduce, 1 << 20, rank == 3 ? 2000000 : 400000000);
  history_.Record(BookOf(node_), node_.taken_realtime_ns);
  EXPECT_THAT(Text({}), testing::ContainsRegex("dp +AllReduce .* 300.50 ms +918 MB/s\n"));
}

TEST_F(TopScreenTest, ShowsJobAndUserOnceIfAllRanksHaveThem) {
  for (collector::ProcessSnapshot& process : node_.processes)
    process.identity = {{"SLURM_JOB_ID", "4712\x1b[2J"}};
  const std::string user = std::to_string(node_.processes[0].uid);
  EXPECT_THAT(Text({}), testing::HasSubstr("1 communicator  job 4712?[2J of user " + user + "\n"));
  EXPECT_THAT(Text({}), testing::Not(testing::HasSubstr("USER")));
}

TEST_F(TopScreenTest, ShowsJobAndUserOfEachRankWhereTheyDiffer) {
  node_.processes[3].identity = {{"SLURM_JOB_ID", "4713"}};
  node_.processes[3].uid = 1234;
  const std::vector<std::string> lines = Screen({});
  EXPECT_THAT(lines[0], testing::EndsWith("2 communicators"));
  EXPECT_THAT(Text({}), testing::ContainsRegex("COMMUNICATOR +JOB +USER +RANK"));
  EXPECT_THAT(Text({}), testing::ContainsRegex("\ndp.* +4713 +1234 +3 "));
  EXPECT_THAT(Text({}), testing::ContainsRegex("\ndp.* +- +[0-9]+ +0 "));
}

TEST_F(TopScreenTest, FitsEverySizeOfScreen) {
  for (const size_t rows : {1, 2, 5, 12, 24, 100}) {
    for (const size_t columns : {1, 20, 80, 200}) {
      const std::vector<std::string> lines = Screen({.columns = columns, .rows = rows});
      EXPECT_LE(lines.size(), std::max<size_t>(rows, 2));
      for (const std::string& line : lines) {
        EXPECT_LE(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }), columns)
            << line;
      }
    }
  }
}

TEST_F(TopScreenTest, NamesHoldNoControlSequences) {
  for (size_t rank = 0; rank < 4; ++rank) Rank(rank).name = "a\x1b[2J\nb";
  const std::string text = Text({});
  EXPECT_THAT(text, testing::HasSubstr("a?[2J?b"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\x1b")));
}

// C1 and turns of direction reach a terminal as valid UTF-8: CSI is U+009B, and U+202E turns what
// follows.
TEST_F(TopScreenTest, TextsOfOtherProcessesAreShownAsTheyAre) {
  const std::string unseen = "\u009b2J\u0085\u202e\u2066\u200b\x9b";
  for (size_t rank = 0; rank < 4; ++rank) {
    Rank(rank).name = "dp" + unseen;
    node_.processes[rank].identity = {{"SLURM_JOB_ID", "4712" + unseen}};
    node_.processes[rank].host_name = "node" + unseen;
    node_.processes[rank].is_alive = rank != 1;
  }
  node_.processes[3].identity = {{"SLURM_JOB_ID", "4713" + unseen}};
  judgement_ = NodeJudge().Judge(node_);
  EXPECT_FALSE(judgement_.findings.empty());
  for (const size_t columns : {80, 200}) {
    const std::string text = Text({.columns = columns, .rows = 40, .has_colours = false});
    EXPECT_THAT(text, testing::HasSubstr("4712"));
    EXPECT_EQ(text, ValidUtf8(text, std::string::npos, "\n")) << "only line feeds are unseen";
  }
}

TEST(TopScreenOfNothingTest, SaysThatThereIsNoProcess) {
  TopView view;
  EXPECT_THAT(TopScreen({}, {}, {}, view), testing::HasSubstr("0 processes"));
}

FoundRank Found(uint64_t rank, Standing standing) {
  FoundRank found;
  found.standing = standing;
  found.rank = rank;
  found.pid = 100 + rank;
  return found;
}

// All ranks but 1 wait for it.
class TopInAHangTest : public TopScreenTest {
 protected:
  TopInAHangTest() {
    Finding hang;
    hang.severity = Severity::kCritical;
    hang.communicator = CommunicatorsOnNode(node_).front().key;
    hang.uid = hang.communicator->uid;
    hang.culprits = {Found(1, Standing::kMissingCall)};
    hang.waiting = {Found(0, Standing::kWaits), Found(2, Standing::kWaits),
                    Found(3, Standing::kWaits)};
    hang.since_realtime_ns = node_.taken_realtime_ns - 45 * kSecondNs;
    hang.headline =
        "Job 4712 hangs since 22:12:45 UTC: it waits for global rank 1 (GPU 1, pid 101, node-1), "
        "which has not entered AllReduce #9";
    hang.cost = "3 of 4 GPUs wait";
    hang.next = "Look at its stack.";
    judgement_.findings = {hang};
    for (size_t i = 0; i < 6; ++i) {
      Finding other;
      other.severity = Severity::kWarning;
      other.headline = "Finding " + std::to_string(i);
      judgement_.findings.push_back(other);
    }
  }

  size_t LineOf(const std::vector<std::string>& lines, const std::string& text) {
    const auto at = std::ranges::find_if(
        lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
    EXPECT_NE(at, lines.end()) << text;
    return static_cast<size_t>(at - lines.begin());
  }
};

TEST_F(TopInAHangTest, TheWorstFindingIsWholeOnASmallScreen) {
  const std::vector<std::string> lines = Screen({.columns = 80, .rows = 24});
  ASSERT_GE(lines.size(), 9u);
  EXPECT_EQ(lines[1] + ' ' + lines[2], judgement_.findings[0].headline);
  EXPECT_EQ(lines[3], "Cost: 3 of 4 GPUs wait, since 22:12:48 UTC (45 s).");
  EXPECT_EQ(lines[4], "Next: Look at its stack.");
  EXPECT_EQ(lines[5], "Finding 0");
  EXPECT_EQ(lines[7], "Finding 2");
  EXPECT_EQ(lines[8], "3 further findings: --json lists all.");
}

TEST_F(TopInAHangTest, TheHostOfALateRankIsShown) {
  judgement_.findings.front().evidence = {{"late by", "12 ms"},
                                          {"on its host meanwhile", "waits for a CPU"}};
  const std::vector<std::string> lines = Screen({.columns = 80, .rows = 24});
  EXPECT_EQ(lines[4], "On its host meanwhile: waits for a CPU.");
  EXPECT_EQ(lines[5], "Next: Look at its stack.");
}

TEST_F(TopInAHangTest, WhatMattersOfRanksIsKeptWhereItIsNarrow) {
  for (const size_t columns : {60, 80, 200}) {
    const std::vector<std::string> lines = Screen({.columns = columns, .rows = 24});
    const size_t head = LineOf(lines, " RANK ");
    EXPECT_THAT(lines[head], testing::ContainsRegex("FOR +LAST TO ENTER +LATE BY$")) << columns;
    EXPECT_THAT(lines[head + 3], testing::ContainsRegex("45 s +0 % +0.0 us$")) << columns;
    EXPECT_EQ(lines[head].find("STARTED") != std::string::npos, columns == 200);
    EXPECT_EQ(lines[head].find("STATE") != std::string::npos, columns >= 80);
  }
}

TEST_F(TopInAHangTest, TheCulpritIsFirstAndRedAndThoseWhoWaitAreDim) {
  EXPECT_EQ(Order()[0], '1');
  const std::vector<std::string> lines = Screen({.columns = 120, .rows = 40, .has_colours = true});
  const size_t head = LineOf(lines, " RANK ");
  EXPECT_THAT(lines[head + 1], testing::AllOf(testing::StartsWith("\x1b[1;31mdp "),
                                              testing::HasSubstr("missing call")));
  EXPECT_THAT(lines[head + 2],
              testing::AllOf(testing::StartsWith("\x1b[2mdp "), testing::HasSubstr("waits")));
}

TEST_F(TopInAHangTest, ThoseWhoWaitFollowTheCulprit) {
  judgement_.findings[0].culprits = {Found(3, Standing::kMissingCall)};
  judgement_.findings[0].waiting = {Found(2, Standing::kWaits)};
  EXPECT_EQ(Order(), "3201");
}

TEST_F(TopInAHangTest, FindingsThatWereSentMakeTheSameScreen) {
  nlohmann::json answer{{"exporter", {{"start", 1700000000}}},
                        {"watches", {{"boot_id", ""}, {"directories", nlohmann::json::array()}}}};
  answer["findings"] = FindingsJson(judgement_);
  answer["looked_at"] = LookedAtJson(judgement_);
  std::string fault;
  const auto received = FindingsFromJson(answer.dump(), fault);
  ASSERT_TRUE(received) << fault;
  for (const size_t columns : {80, 200}) {
    TopView view{.columns = columns, .rows = 24, .has_colours = true};
    const std::string text = Text(view);
    EXPECT_EQ(TopScreen(node_, history_, received->judgement, view), text);
  }
}

TEST_F(TopInAHangTest, SaysWhoseFindingsTheyAreOnEverySize) {
  const std::string judged = "Judged by the daemon since 2023-11-14 22:01 UTC.";
  for (const size_t rows : {3, 12, 24})
    EXPECT_EQ(Screen({.columns = 80, .rows = rows, .judged = judged})[1], judged) << rows;
}

TEST_F(TopInAHangTest, WithoutColoursThereAreNoEscapes) {
  EXPECT_THAT(Text({.columns = 80, .rows = 24}), testing::Not(testing::HasSubstr("\x1b")));
}

TEST_F(TopScreenTest, SaysWhatWasLookedAtWhereNothingIsFound) {
  EXPECT_THAT(Text({}), testing::HasSubstr("\nNothing found in the last 3.0 s: 1 communicator,"));
  EXPECT_THAT(Text({}), testing::HasSubstr(" Not judged here: bandwidth. The alerts do: see"));
  for (size_t rank = 0; rank < 4; ++rank) Rank(rank).nodes = 2;
  judgement_.across_nodes = NodeJudge().Judge(node_).across_nodes;
  EXPECT_THAT(Text({}), testing::HasSubstr(" Not judged here: bandwidth, and the network of 1 "
                                           "communicator across nodes. The alerts do: see"));
}

// Regression: without GPU times nothing is compared, and that looked like a healthy job.
TEST_F(TopScreenTest, AJobThatCannotBeJudgedSaysSoAndHowItWouldBe) {
  for (size_t rank = 0; rank < 4; ++rank) {
    Rank(rank).timing_source = TimingSource::kNone;
    Rank(rank).timing_reason = TimingReason::kAllgathervEnabled;
    Rank(rank).started_sequence = 9;
  }
  Rank(2).in_flight.clear();
  judgement_ = NodeJudge().Judge(node_);
  const std::string text = Text({.columns = 200, .rows = 24, .has_colours = true});
  EXPECT_THAT(text, testing::HasSubstr("\nLate ranks of the job of user 1000 cannot be seen: no "
                                       "GPU times (allgatherv_enabled).\n"))
      << "as an info, without a colour";
  EXPECT_THAT(text, testing::HasSubstr("\nNext: Set NCCL_ALLGATHERV_ENABLE=0 in the job.\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("Nothing found")));
}

TEST_F(TopScreenTest, ShowsAPageOfRanksAndNoneBeyondTheLast) {
  node_.processes.clear();
  for (uint64_t rank = 0; rank < 48; ++rank) {
    node_.processes.push_back(EmptyProcess(100 + rank));
    node_.processes.back().file = {.device = 1, .inode = rank};
    node_.processes.back().communicators.push_back(EmptyCommunicator(7, rank));
  }
  TopView view{.columns = 80, .rows = 24};
  const auto screen = [&] { return LinesOf(TopScreen(node_, history_, judgement_, view)); };
  std::vector<std::string> lines = screen();
  EXPECT_EQ(lines.size(), 24u);
  ASSERT_GT(view.page, 10u);
  EXPECT_THAT(lines.back(), testing::StartsWith("ranks 1-" + std::to_string(view.page) + " of 48"));
  view.first = 5;
  lines = screen();
  const auto head = std::ranges::find_if(
      lines, [](const std::string& line) { return line.find("RANK") != std::string::npos; });
  EXPECT_THAT(head[1], testing::ContainsRegex(" 5  "));
  EXPECT_THAT(lines.back(), testing::StartsWith("ranks 6-"));
  view.first = 1000;
  EXPECT_THAT(screen().back(), testing::HasSubstr("-48 of 48"));
  EXPECT_EQ(view.first, 48 - view.page);
}

TEST(ScrollTest, MovesByARankOrAPageAndNotAboveTheFirst) {
  TopView view{.first = 5, .page = 10};
  const auto first_after = [&](Key key) {
    Scroll(key, view);
    return view.first;
  };
  EXPECT_EQ(first_after(Key::kDown), 6u);
  EXPECT_EQ(first_after(Key::kPageDown), 16u);
  EXPECT_EQ(first_after(Key::kNothing), 16u);
  EXPECT_EQ(first_after(Key::kUp), 15u);
  EXPECT_EQ(first_after(Key::kPageUp), 5u);
  EXPECT_EQ(first_after(Key::kPageUp), 0u);
  EXPECT_EQ(first_after(Key::kUp), 0u);
}

TEST_F(TopScreenTest, CommunicatorsOfOneNameAreToldApartByTheirMembers) {
  for (uint64_t rank = 0; rank < 4; ++rank) {
    Rank(rank).gpu_index = static_cast<int>(rank);
    if (rank % 2 == 1) Rank(rank).id = 0xbbbbbb;
  }
  EXPECT_THAT(Text({}), testing::AllOf(testing::ContainsRegex("\ndp GPU 0,2 +0 "),
                                       testing::ContainsRegex("\ndp GPU 1,3 +1 ")));
}

TEST_F(TopScreenTest, IdleCommunicatorsOfOneRankAreOneLine) {
  for (uint64_t i = 0; i < 12; ++i) {
    collector::CommunicatorSnapshot alone = EmptyCommunicator(1000 + i, 0);
    alone.ranks = 1;
    node_.processes[0].communicators.push_back(alone);
  }
  const std::string text = Text({.columns = 80, .rows = 24});
  EXPECT_THAT(text, testing::HasSubstr("\n12 communicators of one rank are idle\n"));
  EXPECT_THAT(text, testing::HasSubstr("ranks 1-4 of 4"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
