// SPDX-License-Identifier: Apache-2.0
// The daemon's page in a real browser: with a simulated job, and in the states of page_states.js.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/system/browser.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr int kPatienceSeconds = 60;  // several steps of the history, on a busy machine

class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Browser::Path().empty())
      GTEST_SKIP() << "Chromium is not installed (Debian: chromium-headless-shell)";
    daemon_ = std::make_unique<Daemon>(segments_.path());
    browser_ = std::make_unique<Browser>();
    browser_->Resize(1200, 900, false);
    std::ifstream file("tests/system/page_states.js");
    std::stringstream states;
    states << file.rdbuf();
    browser_->RunFirst(states.str());
  }

  // Nothing that the page did, in any of its states, is an error or leads elsewhere.
  void TearDown() override {
    if (!browser_) return;
    EXPECT_THAT(browser_->errors(), testing::IsEmpty());
    const std::string origin = daemon_->Url("");
    for (const std::string& url : browser_->requests())
      EXPECT_THAT(url, testing::AnyOf(testing::StartsWith(origin), "about:blank"));
  }

  json Evaluate(const std::string& expression) { return browser_->Evaluate(expression); }
  std::string Text(const std::string& selector) {
    const json text = Evaluate("document.querySelector('" + selector + "').textContent");
    return text.is_string() ? text.get<std::string>() : "";
  }
  // The texts of all that fit.
  json Texts(const std::string& selector) {
    return Evaluate("[...document.querySelectorAll('" + selector +
                    "')].map((one) => one.textContent)");
  }
  bool EventuallyShows(const std::string& selector, const std::string& text) {
    return exporter::Eventually([&] { return Text(selector).find(text) != std::string::npos; },
                                kPatienceSeconds);
  }

  // Opens a state of page_states.js, and waits until it is drawn.
  void Show(const std::string& state, const std::string& hash = "") {
    browser_->Open("about:blank");  // else a change of the hash alone loads nothing
    browser_->Open(daemon_->Url("/?state=" + state + hash));
    ASSERT_TRUE(EventuallyShows("#node", "node-1")) << state;
  }
  void Click(const std::string& selector) {
    Evaluate("document.querySelector('" + selector + "').click()");
  }
  // The chart whose title begins like this: `what` is done with its `field`.
  json OfChart(const std::string& title, const std::string& what) {
    return Evaluate("(() => { const chart = [...document.querySelectorAll('.plot')].find((one) => "
                    "one.textContent.startsWith('" +
                    title + "')); const field = chart.querySelector('.field'); " + what + " })()");
  }

  const collector::ScratchDirectory segments_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Browser> browser_;
};

constexpr char kFirstRow[] = "#communicator-list summary";
constexpr char kCulprits[] = "#communicator-list tr.culprit";
constexpr char kWaiting[] = "#communicator-list tr.waits";

TEST_F(PageTest, ShowsARealJobAndOutlivesTheDaemon) {
  const exporter::ChildProcess job(SimulatorCommand(
      segments_.path(), segments_.path() + "/truth.json",
      {"--layout", "dp", "--ranks-per-node", "8", "--pace", "real", "--rate", "8", "--duration",
       "240", "--slurm-job-id", "4242", "--env", "NCCL_EXPORTER_KERNEL_TIMING=on"}));
  browser_->Open(daemon_->Url("/"));
  ASSERT_TRUE(EventuallyShows("#tile-processes", "8")) << Text("body");
  EXPECT_TRUE(EventuallyShows("#communicator-list", "8 ranks")) << Text("#communicator-list");
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("job 4242"));
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("GPU 0-7"));

  Click(kFirstRow);
  EXPECT_TRUE(EventuallyShows("#communicator-list", "AllReduce"));
  EXPECT_TRUE(EventuallyShows("#communicator-list", "on each of 8 ranks"));
  EXPECT_TRUE(exporter::Eventually(
      [&] {
        return Evaluate("[...document.querySelectorAll('.line')].some((line) => "
                        "line.getAttribute('d').includes('L'))") == true;
      },
      kPatienceSeconds))
      << "a line of two points and more";
  EXPECT_EQ(Evaluate("[...document.querySelectorAll('canvas')].some((map) => map.getContext('2d')"
                     ".getImageData(0, 0, map.width, map.height).data.some((byte) => byte > 0))"),
            true)
      << "no heat map is drawn";

  // What the states are made of is what a daemon answers; the two that come later are left out.
  EXPECT_EQ(Evaluate("fetch('api/v1/node').then((answer) => answer.json()).then((real) => {"
                     "  const state = nodeInState('straggler'), comm = state.communicators[0];"
                     "  const missing = (known, other) => Object.keys(known).filter((name) => "
                     "    !(name in other) && name !== 'waiting');"
                     "  return [missing(state, real), missing(state.looked_at, real.looked_at),"
                     "    missing(state.processes[0], real.processes[0]),"
                     "    missing(state.directories[0], real.directories[0]),"
                     "    missing(comm, real.communicators[0]),"
                     "    missing(comm.local_ranks[0], real.communicators[0].local_ranks[0]),"
                     "    missing(comm.collectives[0], real.communicators[0].collectives[0])]"
                     "    .flat(); })"),
            json::array());

  const std::string started = Text("#communicator-list tbody td:nth-child(9)");
  EXPECT_TRUE(exporter::Eventually(
      [&] { return Text("#communicator-list tbody td:nth-child(9)") != started; }))
      << "updates";

  daemon_->process().Signal(SIGKILL);
  EXPECT_TRUE(EventuallyShows("#state", "connection lost: no answer for"));
  EXPECT_THAT(Text("title"), testing::StartsWith("connection lost"));
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("AllReduce"))
      << "what was known stays";
  const exporter::ChildProcess next(
      {kDaemonPath, "--web.listen-address=127.0.0.1:" + std::to_string(daemon_->port()),
       "--segment.dir=" + segments_.path()});
  EXPECT_TRUE(exporter::Eventually(
      [&] { return Evaluate("document.body.classList.contains('stale')") == false; },
      kPatienceSeconds));
  EXPECT_THAT(Text("title"), testing::Not(testing::HasSubstr("lost")));
}

struct Expected {
  std::string state, headline, title, lamp, culprit;
  size_t waiting;
};

// The point of the page: the culprit's row is red, those that wait for it are grey, and headline,
// lamp and tab say the same.
TEST_F(PageTest, HeadlineLampTabAndRowsFollowTheWorstFinding) {
  for (const Expected& expected : std::vector<Expected>{
           {"hang", "which has not entered AllGather #325.", "● hang: rank 3 – node-1", "bad",
            "3has not entered", 7},
           {"killed", "which was killed.", "● hang: rank 3 – node-1", "bad", "3was killed", 7},
           {"gone", "which is not seen on this node.", "● hang: rank 3 – node-1", "bad",
            "3is missing", 7},
           {"stopped", "which is stopped.", "● hang: rank 3 – node-1", "bad", "3is stopped", 7},
           {"straggler", "waits for global rank 5", "● late: rank 5 – node-1", "warn", "5is late",
            7},
           {"many", "Job 4712 hangs since 23:40:29 UTC", "● hang: rank 3 – node-1", "bad",
            "3has not entered", 7}}) {
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
            "Nothing found in the last 5 min: 12 communicators, 1,204 operations compared.");
  EXPECT_EQ(Evaluate("document.title"), "node-1 – nccl-exporter");
  EXPECT_EQ(Text("#state"), "nothing found");
  EXPECT_EQ(Evaluate("document.getElementById('directories').hidden"), true);
  EXPECT_THAT(Text("#losses"), testing::HasSubstr("19,200not followedcommunicator_drifting"));
  EXPECT_EQ(Texts("tr.warn, tr.culprit, .communicator.bad, .communicator.warn").size(), 0u)
      << "a loss by design alarms nobody";
  Show("learning");
  EXPECT_EQ(Text("#headline"),
            "Nothing found in the last 2 min: 1 communicator, 3 operations compared. Late ranks "
            "can be found in 3 min.");
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

TEST_F(PageTest, TheEmptyPageSaysWhereTheDaemonLooksAndWhatToSet) {
  Show("empty");
  EXPECT_EQ(Text("#headline"), "No process has made a communicator yet.");
  EXPECT_EQ(Evaluate("document.getElementById('lamp').className"), "lamp idle") << "not green";
  const std::string directories = Text("#directories");
  for (const char* part :
       {"/run/nccl-exportercan be read", "/dev/shm/nccl-exporterdoes not exist (yet)",
        "/dev/shm/nccl-exporter-*", "NCCL_PROFILER_PLUGIN=", "NCCL_EXPORTER_DIR="})
    EXPECT_THAT(directories, testing::HasSubstr(part));
}

// The real daemon's answer, without a state.
TEST_F(PageTest, TheEmptyPageNamesTheRealDirectory) {
  browser_->Open(daemon_->Url("/"));
  EXPECT_TRUE(EventuallyShows("#directories", segments_.path() + "can be read"))
      << Text("#directories");
}

TEST_F(PageTest, NamesUnreadableDirectoriesAndUnusableFiles) {
  Show("unreadable");
  EXPECT_THAT(Text("#headline"), testing::HasSubstr("/run/nccl-exporter cannot be read"));
  EXPECT_EQ(Evaluate("document.title"), "● unusable files – node-1");
  const std::string directories = Text("#directories");
  EXPECT_THAT(directories,
              testing::HasSubstr("/run/nccl-exportercannot be readPermission denied"));
  EXPECT_THAT(directories, testing::HasSubstr("/dev/shm/nccl-exporter-1001/junk.seg"));
  EXPECT_THAT(directories, testing::Not(testing::HasSubstr("past.seg"))) << "it is repaired";
}

TEST_F(PageTest, AFindingLeadsToItsCommunicatorAndIsCopied) {
  Show("hang");
  Evaluate("Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { "
           "writeText: async (text) => { window.copied = text; } } })");
  Click("#worst button");
  ASSERT_TRUE(EventuallyShows("#worst button", "Copied"));
  EXPECT_EQ(Evaluate("window.copied"),
            "node-1: Job 4712 hangs since 23:40:29 UTC: it waits for global rank 3 (GPU 3, pid "
            "5829, node-1), which has not entered AllGather #325.\nCost: 7 of 8 GPUs wait\nSince: "
            "2026-11-22 23:40:29 UTC\nBehind: 7 collectives\nNothing has moved for: 45 s\nNext: "
            "Look at the stack of pid 5829 on node-1 (py-spy dump --pid 5829) before the job is "
            "killed.\nRunbook: NCCLHangCulprit");
  // As on a page without TLS, where browsers give no clipboard.
  Evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined }); "
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

TEST_F(PageTest, EightyEightCommunicatorsFitFourScreensSortedByTrouble) {
  Show("many");
  EXPECT_LE(Evaluate("document.documentElement.scrollHeight").get<int>(), 4 * 900);
  EXPECT_EQ(Text("#shown"), "88 communicators");
  EXPECT_THAT(Text(kFirstRow), testing::StartsWith("fsdp: GPU 0-7"));
  EXPECT_THAT(Text(kFirstRow), testing::HasSubstr("hang: rank 3, in AllGather #325 for 45.2 s"));
  EXPECT_EQ(Texts("#communicator-list > details").size(), 80u);
  EXPECT_EQ(Text("#alone-title"), "8 communicators of one rank");
  EXPECT_EQ(Texts("#other-list > details").size(), 5u) << "further findings that need no click";
  EXPECT_EQ(Text("#folded-title"), "2 further findings");
  EXPECT_EQ(Texts("#communicator-list .plot").size(), 0u) << "nothing is drawn for folded ones";
}

TEST_F(PageTest, FiltersByNameJobRankGpuAndPid) {
  Show("quiet");
  const auto left = [&](const std::string& filter) {
    Evaluate("(() => { const box = document.getElementById('filter'); box.value = '" + filter +
             "'; box.dispatchEvent(new Event('input')); })()");
    return Texts("#communicator-list .name");
  };
  EXPECT_EQ(left("gpu 3"), (json{"pp: GPU 3, 7", "tp: GPU 0-3", "world: GPU 0-7"}));
  EXPECT_EQ(left("tp"), (json{"tp: GPU 0-3", "tp: GPU 4-7"}));
  EXPECT_EQ(left("tp gpu 3"), (json{"tp: GPU 0-3"}));
  EXPECT_EQ(left("rank 7"), (json{"world: GPU 0-7"}));
  EXPECT_EQ(left("pid 5833"), (json{"pp: GPU 3, 7", "tp: GPU 4-7", "world: GPU 0-7"}));
  EXPECT_EQ(left("job 4712").size(), 7u);
  EXPECT_EQ(left("job 47").size(), 0u);
  EXPECT_EQ(Text("#shown"), "0 of 12 communicators");
}

TEST_F(PageTest, ALinkShowsTheSameView) {
  Show("quiet");
  Evaluate("(() => { const box = document.getElementById('filter'); box.value = 'gpu 3'; "
           "box.dispatchEvent(new Event('input')); const sort = document.getElementById('sort'); "
           "sort.value = 'name'; sort.dispatchEvent(new Event('change')); })()");
  Click("#communicator-list details:nth-child(2) summary");
  ASSERT_TRUE(exporter::Eventually([&] {
    return Evaluate("location.hash").get<std::string>().find("open=") != std::string::npos;
  }));
  const std::string hash = Evaluate("location.hash");
  EXPECT_THAT(hash, testing::StartsWith("#filter=gpu+3&sort=name&open="));
  Show("quiet", hash);
  EXPECT_EQ(Texts("#communicator-list .name"),
            (json{"pp: GPU 3, 7", "tp: GPU 0-3", "world: GPU 0-7"}));
  EXPECT_THAT(Text("details.communicator[open] summary"), testing::StartsWith("tp: GPU 0-3"));
  EXPECT_EQ(Evaluate("document.getElementById('filter').value"), "gpu 3");
  EXPECT_EQ(Evaluate("document.getElementById('sort').value"), "name");
  EXPECT_EQ(Evaluate("location.hash"), hash);
}

TEST_F(PageTest, ChartsHaveAxesAndSayValueAndTimeAtTheCursor) {
  Show("straggler");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows("#communicator-list", "Mean time"));
  EXPECT_EQ(OfChart("Mean time",
                    "return [...chart.querySelectorAll('.ticks-y span, .ticks-x span')]"
                    ".map((tick) => tick.textContent);"),
            (json{"20.0 ms", "10.0 ms", "0", "23:36:19", "23:41:14 UTC"}));
  const std::string readout = "return chart.querySelector('.readout').textContent;";
  EXPECT_EQ(OfChart("Mean time", readout), "now 10.9 ms");
  EXPECT_EQ(OfChart("Mean time", "field.focus(); " + readout), "23:41:14 UTC: 10.9 ms");
  EXPECT_EQ(OfChart("Mean time",
                    "field.dispatchEvent(new KeyboardEvent('keydown', { key: "
                    "'ArrowLeft', cancelable: true })); " +
                        readout),
            "23:41:09 UTC: 10.9 ms");
  EXPECT_EQ(OfChart("Mean time", "return field.getAttribute('aria-valuetext');"),
            "23:41:09 UTC: 10.9 ms");
  EXPECT_EQ(OfChart("Mean time",
                    "const box = field.getBoundingClientRect(); field.dispatchEvent(new "
                    "PointerEvent('pointermove', { clientX: box.left + 1, clientY: box.top + 5 "
                    "})); " +
                        readout),
            "23:36:19 UTC: 1.20 ms")
      << "the chart begins where the history begins";
  // Row 5 of 8, in the newest step.
  EXPECT_EQ(OfChart("Who waits",
                    "const box = field.getBoundingClientRect(); field.dispatchEvent(new "
                    "PointerEvent('pointermove', { clientX: box.right - 1, clientY: box.top + "
                    "box.height * 5.5 / 8 })); " +
                        readout),
            "23:41:14 UTC: rank 5 waits 0 % of the time");
  EXPECT_EQ(OfChart("Who waits",
                    "field.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', "
                    "cancelable: true })); " +
                        readout),
            "23:41:14 UTC: rank 4 waits 11 % of the time");
}

// In a hang the newest value is that of the last operation that ended.
TEST_F(PageTest, AValueOfThePastIsNotCalledNow) {
  Show("hang");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows("#communicator-list", "Mean time"));
  EXPECT_EQ(OfChart("Mean time", "return chart.querySelector('.readout').textContent;"),
            "at 23:40:29 1.17 ms");
}

TEST_F(PageTest, TheRowOfTheRankThatOthersWaitForStaysEmpty) {
  Show("straggler");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows("#communicator-list", "Who waits"));
  EXPECT_EQ(OfChart("Who waits",
                    "const map = chart.querySelector('canvas'); return [0, 1, 2, 3, 4, 5, 6, 7]"
                    ".map((row) => map.getContext('2d').getImageData(map.width - 1, row, 1, 1)"
                    ".data[3] > 50);"),
            (json{true, true, true, true, true, false, true, true}));
  EXPECT_EQ(Texts(".ticks-y .culprit"), json{"rank 5"});
  Click("#communicator-list details:nth-child(2) summary");
  EXPECT_TRUE(exporter::Eventually([&] { return Texts(".collective h3").size() == 2; }));
  EXPECT_EQ(Texts(".plot.ranks").size(), 1u) << "none where the daemon does not know it";
}

TEST_F(PageTest, TransferAndWaitingAreTwoNumbersAndRatesAreThoseOfOneRank) {
  Show("straggler");
  Click(kFirstRow);
  ASSERT_TRUE(EventuallyShows(".collective", "AllReduce"));
  const std::string facts = Text(".collective dl");
  for (const char* part :
       {"40 /s on each of 8 ranks", "transfer, of the fastest rank1.20 ms",
        "waiting, on average9.80 ms"})
    EXPECT_THAT(facts, testing::HasSubstr(part));
  EXPECT_THAT(facts, testing::Not(testing::HasSubstr("bandwidth")));
  Click("#communicator-list details:nth-child(2) summary");
  EXPECT_TRUE(exporter::Eventually([&] { return Texts(".collective dl").size() == 2; }));
  EXPECT_THAT(Texts(".collective dl")[1].get<std::string>(),
              testing::HasSubstr("bus bandwidth, waiting included138 GB/s"));
}

TEST_F(PageTest, FitsAPhoneAndHasNamesForScreenReaders) {
  browser_->Resize(390, 844, true);
  for (const char* state : {"empty", "quiet", "hang", "many", "unreadable", "straggler"}) {
    SCOPED_TRACE(state);
    Show(state);
    Evaluate("document.querySelector('#communicator-list summary')?.click()");
    exporter::SleepMilliseconds(200);
    EXPECT_EQ(Evaluate("document.documentElement.scrollWidth"), 390) << "no sideways scrolling";
    EXPECT_EQ(Evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(16, 21, 27)");
    EXPECT_EQ(Evaluate("document.querySelectorAll('h1').length"), 1);
    EXPECT_EQ(Evaluate("[...document.querySelectorAll('table')].every((table) => table.caption && "
                       "table.caption.textContent)"),
              true);
    EXPECT_EQ(Evaluate("[...document.querySelectorAll('.field')].every((field) => field.tabIndex "
                       "=== 0 && field.getAttribute('aria-label') && "
                       "field.getAttribute('aria-valuetext'))"),
              true)
        << "charts are reached by keyboard, and say their values";
    EXPECT_EQ(Evaluate("[...document.querySelectorAll('.wide')].every((box) => box.tabIndex === 0 "
                       "&& box.getAttribute('aria-label'))"),
              true)
        << "tables that scroll are reached by keyboard and have a name";
    EXPECT_EQ(Evaluate("document.querySelectorAll('[aria-live]').length"), 1)
        << "only the headline speaks by itself";
  }
}

// For docs/page.png and docs/page-phone.png, and to look at.
TEST_F(PageTest, TakesPictures) {
  const char* const directory = std::getenv("NCCL_EXPORTER_SCREENSHOTS");
  if (directory == nullptr) GTEST_SKIP() << "NCCL_EXPORTER_SCREENSHOTS names no directory";
  for (const char* state : {"empty", "quiet", "straggler", "hang", "killed", "stopped", "many",
                            "unreadable"}) {
    for (const std::string form : {"light", "dark", "phone"}) {
      browser_->Resize(form == "phone" ? 390 : 1200, form == "phone" ? 844 : 900, form != "light");
      Show(state);
      if (form == "light") Evaluate("document.querySelector('.bad summary, .warn summary')?.click()");
      exporter::SleepMilliseconds(500);
      std::ofstream(directory + std::string("/") + state + "-" + form + ".png")
          << browser_->Screenshot();
    }
  }
}

}  // namespace
}  // namespace nccl_exporter
