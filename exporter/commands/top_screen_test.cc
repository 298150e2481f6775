// SPDX-License-Identifier: Apache-2.0
#include "exporter/commands/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/testing/example_snapshot.h"

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
      judge_.Record(node_, node_.taken_realtime_ns);
    }
    Rank(2).in_flight = {{.function = Function::kAllReduce,
                          .sequence = 9,
                          .start_realtime_ns = node_.taken_realtime_ns - 45 * kSecondNs}};
  }

  collector::CommunicatorSnapshot& Rank(size_t rank) {
    return node_.processes[rank].communicators[0];
  }
  std::vector<std::string> Screen(const TopView& view) {
    return LinesOf(TopScreen(node_, judge_, view));
  }
  // Ranks in the order of the table.
  std::string Order(TopSort sort) {
    std::string ranks;
    bool is_table = false;
    for (const std::string& line : Screen({.sort = sort})) {
      if (is_table) ranks += line.substr(line.find_first_of("0123456789"), 1);
      is_table |= line.find("RANK") != std::string::npos;
    }
    return ranks;
  }

  collector::NodeSnapshot node_;
  NodeJudge judge_;
};

TEST_F(TopScreenTest, ShowsRatesMeansAndTheirTrend) {
  const std::string text = TopScreen(node_, judge_, {});
  EXPECT_THAT(text, testing::HasSubstr("4 processes  1 communicators  1 in flight"));
  EXPECT_THAT(text,
              testing::ContainsRegex("dp +AllReduce +4.00 /s +4.19 MB/s +5.00 ms +367 MB/s +▆█"));
}

TEST_F(TopScreenTest, SaysWhatStandsOutByName) {
  const std::string text = TopScreen(node_, judge_, {});
  EXPECT_THAT(
      text,
      testing::HasSubstr(
          "rank 3 of dp (pid 103) is late: the last to enter 100 % of operations, by 10.00 ms"));
  EXPECT_THAT(text,
              testing::HasSubstr("rank 2 of dp (pid 102) has been in AllReduce #9 for 45.0 s"));
}

TEST_F(TopScreenTest, SortsTheRanks) {
  EXPECT_EQ(Order(TopSort::kRank), "0123");
  EXPECT_EQ(Order(TopSort::kAge), "2013");
  EXPECT_EQ(Order(TopSort::kLate), "3012");
  EXPECT_EQ(Order(TopSort::kBehind), "1023");
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

TEST_F(TopScreenTest, ScrollsBelowTheHead) {
  const std::vector<std::string> lines = Screen({.columns = 120, .rows = 40, .first_rank = 3});
  const auto head = std::ranges::find_if(
      lines, [](const std::string& line) { return line.find(" RANK ") != std::string::npos; });
  ASSERT_NE(head, lines.end());
  EXPECT_THAT(*(head + 1), testing::ContainsRegex("^dp +3 "));
}

TEST_F(TopScreenTest, NamesHoldNoControlSequences) {
  for (size_t rank = 0; rank < 4; ++rank) Rank(rank).name = "a\x1b[2J\nb";
  const std::string text = TopScreen(node_, judge_, {});
  EXPECT_THAT(text, testing::HasSubstr("a?[2J?b"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\x1b")));
}

TEST(TopScreenOfNothingTest, IsTwoHeads) {
  EXPECT_THAT(TopScreen({}, NodeJudge(), {}), testing::HasSubstr("0 processes"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
