// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/screen.h"

#include <gtest/gtest.h>

namespace nccl_exporter::detection {
namespace {

using Lacks = std::vector<std::string>;

constexpr char kHead[] = "2026-11-22 23:43:10Z  8 processes  2 communicators\n";
constexpr char kRest[] =
    "\n COMMUNICATOR  RANK  FOR\n>dp               3  2 min\nranks 1-8 of 8  q quit\n";
constexpr char kName[] = "global rank 1";

std::string ScreenWith(const std::string& findings) { return kHead + findings + kRest; }

TEST(Screen, HasRankAgeAndCostThoughTheSentencesAreWrapped) {
  EXPECT_EQ(LacksOf(ScreenWith("Job 4711 hangs since 23:41:06 UTC: 7 ranks wait for global\n"
                               "rank 1 (GPU 1, pid 77, host), which has not entered AllReduce.\n"
                               "Cost: 7 of 8 GPUs of this node wait, since 23:41:06\n"
                               "UTC (2 min).\nNext: Look.\n"),
                    kName),
            Lacks());
  EXPECT_EQ(LacksOf(ScreenWith("Job 4711 waits for global rank 1 (GPU 1) since 23:41:06 UTC.\n"
                               "Cost: waiting costs 0.7 GPUs of 8 on this node, since\n"
                               "23:41:06 UTC (4.5 s).\n"),
                    kName),
            Lacks());
}

TEST(Screen, AnotherRankIsNotTheCulprit) {
  EXPECT_EQ(LacksOf(ScreenWith("Job 4711 waits for global rank 11 (GPU 3).\n"
                               "Cost: 1 of 8 GPUs of this node waits, since 23:41:06 UTC (2 h).\n"),
                    kName),
            Lacks{"rank"});
}

TEST(Screen, ACulpritOfALaterFindingIsNotShownWithItsCost) {
  EXPECT_EQ(LacksOf(ScreenWith("Job 4711 waits for global rank 2 (GPU 3).\n"
                               "Cost: 7 of 8 GPUs of this node wait, since 23:41:06 UTC (2 min).\n"
                               "Job 4711 waits for global rank 1 (GPU 1) since 23:41:06 UTC\n"),
                    kName),
            Lacks{"rank"});
}

TEST(Screen, WhatIsCutOffIsLacking) {
  EXPECT_EQ(
      LacksOf(
          ScreenWith("Job 4711 hangs: 7 ranks wait for global rank 1 (GPU 1).\n"
                     "Cost: 7 of 8 GPUs of this node wait, since 23:41:06 UTC (2 m\xE2\x80\xA6\n"),
          kName),
      Lacks{"age"});
  EXPECT_EQ(LacksOf(ScreenWith("Job 4711 hangs: 7 ranks wait for global rank 1 (GPU 1).\n"
                               "Since 23:41:06 UTC (2 min).\n"),
                    kName),
            (Lacks{"age", "cost"}))
      << "the age of a finding stands beside its cost";
  EXPECT_EQ(LacksOf(ScreenWith("Nothing found in the last 3.0 s: 1 communicator.\n"), kName),
            (Lacks{"rank", "age", "cost"}));
  EXPECT_EQ(LacksOf("", kName), (Lacks{"rank", "age", "cost"}));
}

const Directory kDirectory{.global_ranks = {{{"c0", "1"}, 9}, {{"c0", "2"}, 17}},
                           .ranks_per_node = 8};

Screen ScreenOf(const FoundCulprits& culprits, const std::string& text) {
  return {.expected_rank = 9,
          .moment = "first",
          .size = kScreenSizes[0],
          .culprits = culprits,
          .text = text};
}

TEST(ScreenVerdict, IsAskedWhereTheDaemonNamesTheRightRank) {
  const std::string good = ScreenWith(
      "Job 4711 waits for global rank 9 (GPU 1).\n"
      "Cost: waiting costs 0.2 GPUs of 8 on this node, since 23:41:06 UTC (4.5 s).\n");
  const FoundCulprits right{{{"c0", "1"}, "global rank 9"}};
  std::vector<Screen> screens{ScreenOf(right, good), ScreenOf(right, "no server running"),
                              ScreenOf({{{"c0", "2"}, "global rank 17"}}, good),
                              ScreenOf({}, good)};
  Verdict verdict;
  JudgeScreens(screens, kDirectory, verdict);
  ASSERT_TRUE(verdict.classes.contains("screen-80x24"));
  EXPECT_EQ(verdict.classes["screen-80x24"].expected, 2);
  EXPECT_EQ(verdict.classes["screen-80x24"].met, 1);
  EXPECT_EQ(verdict.complaints,
            Lacks{"missed: screen-80x24 (first) lacks rank, age, cost of global rank 9"});
  EXPECT_TRUE(screens[1].is_asked);
  EXPECT_FALSE(screens[2].is_asked);
}

TEST(ScreenVerdict, AKilledProcessHasNoCommunicatorAndCostsProcesses) {
  std::vector<Screen> screens{
      ScreenOf(
          {{{"", "1"}, "global rank 9"}},
          ScreenWith("1 process of job 4711 has ended without finalizing NCCL: global rank 9.\n"
                     "Cost: 1 of 8 processes on this node, since 23:41:06 UTC (2 min).\n")),
      ScreenOf({{{"", "1"}, "global rank 17"}}, "")};
  Verdict verdict;
  JudgeScreens(screens, kDirectory, verdict);
  EXPECT_EQ(verdict.classes["screen-80x24"].expected, 1);
  EXPECT_EQ(verdict.classes["screen-80x24"].met, 1);
  EXPECT_FALSE(screens[1].is_asked);
}

}  // namespace
}  // namespace nccl_exporter::detection
