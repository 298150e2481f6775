// SPDX-License-Identifier: Apache-2.0
// Headline, lamp, tab and rows: what the page says is wrong.
#include <string>
#include <vector>

#include "tests/page/page_test.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

struct Expected {
  std::string state, headline, title, lamp, culprit;
  size_t waiting;
};

// The point of the page: the culprit's row is red, those that wait for it are grey, and headline,
// lamp and tab say the same.
TEST_F(PageTest, HeadlineLampTabAndRowsFollowTheWorstFinding) {
  for (const Expected& expected :
       std::vector<Expected>{{"hang", "which has not entered AllGather #325 of fsdp.",
                              "● hang: global rank 3 – node-1", "bad", "3has not entered", 7},
                             {"killed", "whose process has ended.", "● hang: global rank 3 – node-1",
                              "bad", "3was killed", 7},
                             {"gone", "which is not seen on this node any more.",
                              "● hang: global rank 3 – node-1", "bad", "3is missing", 7},
                             {"stopped", "whose process is stopped.", "● hang: global rank 3 – node-1",
                              "bad", "3is stopped", 7},
                             {"straggler", "waits for global rank 5", "● late: global rank 5 – node-1",
                              "warn", "5is late", 7},
                             {"many", "Job 4712 hangs since 23:38:44 UTC",
                              "● hang: global rank 3 – node-1", "bad", "3has not entered", 7}}) {
    SCOPED_TRACE(expected.state);
    Show(expected.state);
    Click(kFirstRow);
    EXPECT_THAT(Text("#headline"), testing::HasSubstr(expected.headline));
    EXPECT_EQ(Text("#announcement"), Text("#headline"));
    EXPECT_EQ(Evaluate("document.title"), expected.title);
    EXPECT_EQ(Evaluate("document.getElementById('lamp').className"), "lamp " + expected.lamp);
    EXPECT_EQ(Evaluate("document.getElementById('verdict').className"), expected.lamp);
    ASSERT_TRUE(exporter::Eventually([&] { return Texts(kCulprits).size() == 1; }));
    EXPECT_THAT(Texts(kCulprits)[0].get<std::string>(), testing::StartsWith(expected.culprit));
    EXPECT_EQ(Texts(kWaiting).size(), expected.waiting);
    for (const json& row : Texts(kWaiting))
      EXPECT_THAT(row.get<std::string>(), testing::HasSubstr("waits"));
  }
}

// Regression: the rank was missing, in orange.
TEST_F(PageTest, ARankWithoutRoomIsNotMissing) {
  Show("noRoom");
  Click(kFirstRow);
  ASSERT_TRUE(exporter::Eventually([&] { return Texts(kWaiting).size() == 1; }));
  EXPECT_THAT(Texts(kWaiting)[0].get<std::string>(), testing::StartsWith("3no room"));
}

// Regression: the lamp was green, though nothing could be found.
TEST_F(PageTest, AJobThatCannotBeJudgedIsNotGreen) {
  Show("untimed");
  EXPECT_EQ(Text("#headline"),
            "Late ranks of job 4712 cannot be seen: no GPU times (allgatherv_enabled).");
  EXPECT_EQ(Evaluate("document.getElementById('lamp').className"), "lamp info");
  EXPECT_EQ(Text("#state"), "not judged");
  EXPECT_THAT(Texts("#worst dd").dump(),
              testing::HasSubstr("Set NCCL_ALLGATHERV_ENABLE=0 in the job."));
}

// The daemon serves its runbooks itself, so that the link works where the project's pages cannot be
// reached.
TEST_F(PageTest, ARunbookIsALinkToTheDaemonsOwn) {
  const std::string link = "[...document.querySelectorAll('#worst dd a')].at(-1)";
  for (const auto& [state, name] : std::vector<std::pair<std::string, std::string>>{
           {"hang", "NCCLHangCulprit"}, {"untimed", "NCCLJobNotJudged"}}) {
    Show(state);
    EXPECT_EQ(Evaluate(link + ".textContent"), name);
    EXPECT_EQ(Evaluate(link + ".getAttribute('href')"), "docs/runbooks/" + name);
    EXPECT_EQ(Evaluate(link + ".href"), page_->daemon().Url("/docs/runbooks/" + name));
  }
}

// Regression: the headline had global ranks, and the lines below it those of the communicator.
TEST_F(PageTest, ACardHasOneNumberingOfRanks) {
  Show("grid");
  EXPECT_THAT(Texts("#worst dd").dump(), testing::HasSubstr("\"global ranks 4, 6, 7\""));
  EXPECT_THAT(Text(kFirstRow), testing::HasSubstr("hang: global rank 5 has not entered AllGather "
                                                  "#325, for 2.5 min"));
  Show("gridWithoutGlobalRanks");
  EXPECT_THAT(Texts("#worst dd").dump(), testing::HasSubstr("\"ranks 0, 2, 3 of tp\""));
  EXPECT_THAT(Text(kFirstRow), testing::HasSubstr("hang: rank 1 has not entered AllGather #325, "
                                                  "for 2.5 min"));
}

// The sentence has the time of day, and what hangs is busy though nothing ends.
TEST_F(PageTest, NothingContradictsOrRepeatsTheHeadline) {
  Show("hang");
  EXPECT_EQ(Text("#price"), "7 of 8 GPUs of this node wait · for 2 min");
  EXPECT_THAT(Text(kFirstRow), testing::HasSubstr("0 /s per rank"));
  EXPECT_THAT(Texts("#worst dt")[1], "Next") << "at 3 am it is the second question";
  EXPECT_THAT(Texts("th").dump(), testing::HasSubstr("global rank")) << "as the headline has it";
  Show("stopped");
  EXPECT_EQ(Text("#processes-title"), "Processes: 7 of 8 run");
}

TEST_F(PageTest, ShowsColoursAsTheyAreMeant) {
  Show("hang");
  Click(kFirstRow);
  ASSERT_TRUE(exporter::Eventually([&] { return Texts(kCulprits).size() == 1; }));
  const auto style = [&](const std::string& row, const std::string& name) {
    return Evaluate("getComputedStyle(document.querySelector('" + row + " td'))." + name);
  };
  EXPECT_EQ(style(kCulprits, "color"), "rgb(179, 38, 30)");
  EXPECT_EQ(style(kCulprits, "fontWeight"), "700");
  EXPECT_EQ(style(kWaiting, "color"), "rgb(85, 98, 111)");
  EXPECT_EQ(style(kWaiting, "fontWeight"), "400");
}

// Names come from jobs, and sentences hold names.
TEST_F(PageTest, TextOfOthersIsNeverMarkup) {
  Show("hostile");
  Click(kFirstRow);
  ASSERT_TRUE(exporter::Eventually([&] { return Texts(kCulprits).size() == 1; }));
  EXPECT_THAT(Text("#headline"), testing::HasSubstr("<img src=x onerror="));
  EXPECT_THAT(Text(kFirstRow), testing::StartsWith("<img src=x onerror="));
  EXPECT_EQ(Texts("img, main script").size(), 0u);
  EXPECT_EQ(Evaluate("window.isHostile"), json());
}

TEST_F(PageTest, SaysWhatWasLookedAtWhereNothingIsFound) {
  Show("quiet");
  EXPECT_EQ(Text("#headline"),
            "Nothing found in the last 5 min: 12 communicators, 1,204 operations compared. Not "
            "judged here: bandwidth, and the network of 4 communicators across nodes. The alerts "
            "do: see nccl-exporter report.");
  EXPECT_EQ(Evaluate("document.title"), "node-1 – nccl-exporter");
  EXPECT_EQ(Text("#state"), "nothing found on this node");
  EXPECT_EQ(Evaluate("document.getElementById('lamp').className"), "lamp good");
  EXPECT_EQ(Evaluate("document.getElementById('directories').hidden"), true);
  EXPECT_THAT(Text("#losses"), testing::HasSubstr("19,200not followedcommunicator_drifting"));
  EXPECT_EQ(Texts("tr.warn, tr.culprit, .communicator.bad, .communicator.warn").size(), 0u)
      << "a loss by design alarms nobody";
  Show("learning");
  EXPECT_EQ(Text("#headline"),
            "Nothing found in the last 2 min: 1 communicator, 3 operations compared. Late ranks "
            "can be found in 3 min. Not judged here: bandwidth. The alerts do: see "
            "nccl-exporter report.");
  EXPECT_EQ(Evaluate("document.getElementById('lamp').className"), "lamp good");
}

// After the end of a job, amber rows and "no process yet" would be wrong.
TEST_F(PageTest, ProcessesThatHaveEndedAreNeutral) {
  Show("ended");
  EXPECT_EQ(Text("#headline"), "No communicator is open: all 8 processes have ended.");
  EXPECT_EQ(Text("#processes tbody td:nth-child(2)"), "ended");
  EXPECT_EQ(Texts("#processes tr.warn, #processes tr.culprit").size(), 0u);
}

TEST_F(PageTest, KilledAndStoppedProcessesAreNamedInTheTableOfProcesses) {
  Show("killed");
  EXPECT_EQ(Texts("#processes tr.culprit").size(), 1u);
  EXPECT_THAT(Text("#processes tr.culprit"), testing::StartsWith("5829killed"));
  EXPECT_EQ(Texts("#processes tr.waits").size(), 7u);
  Show("stopped");
  EXPECT_THAT(Text("#processes tr.culprit"), testing::StartsWith("5829stopped"));
  Show("quiet");
  EXPECT_THAT(Text("#processes tbody tr"), testing::StartsWith("5826runs"));
}

TEST_F(PageTest, AFindingLeadsToItsCommunicatorAndIsCopied) {
  Show("hang");
  Evaluate(
      "Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { "
      "writeText: async (text) => { window.copied = text; } } })");
  Click("#worst button");
  ASSERT_TRUE(EventuallyShows("#worst button", "Copied"));
  EXPECT_EQ(
      Evaluate("window.copied"),
      "node-1: Job 4712 hangs since 23:38:44 UTC: 7 ranks wait for global rank 3 (GPU 3, pid "
      "5829, node-1), which has not entered AllGather #325 of fsdp.\nCost: 7 of 8 GPUs of "
      "this node wait\nSince: 2026-11-22 23:38:44 UTC\nWaiting for: 2 min\nOperation: "
      "AllGather #325 of fsdp, 1.0 MiB\nCollectives started: 533 by global rank 0, 1, 2, 4, 5, 6, "
      "7; 526 by global rank 3\nBehind: global rank 3 (GPU 3, pid 5829, node-1) by 7 collectives\nLast "
      "activity of global rank 3: 23:38:44 UTC, 2 min ago\nNext: Look at its stack before the job "
      "is killed: py-spy dump --pid 5829 or gdb -p 5829 on node-1.\nCollect: py-spy dump "
      "--pid 5829  # stack of global rank 3 (GPU 3, pid 5829, node-1)\nRunbook: "
      "NCCLHangCulprit");
  // As on a page without TLS, where browsers give no clipboard.
  Evaluate(
      "Object.defineProperty(navigator, 'clipboard', { value: undefined }); "
      "document.execCommand = (name) => { window.copiedSo = name + "
      "document.activeElement.value.slice(0, 6); return true; }");
  Click("#worst button");
  ASSERT_TRUE(exporter::Eventually([&] { return Evaluate("window.copiedSo") == "copynode-1"; }));

  EXPECT_EQ(Texts("details.communicator[open]").size(), 0u);
  Click("#worst a");
  ASSERT_TRUE(exporter::Eventually(
      [&] { return Texts("details.communicator[open] tr.culprit").size() == 1; }));
  EXPECT_THAT(Text("details.communicator[open] summary"), testing::HasSubstr("fsdp"));
  EXPECT_EQ(Evaluate("document.activeElement.tagName"), "SUMMARY");
}

}  // namespace
}  // namespace nccl_exporter
