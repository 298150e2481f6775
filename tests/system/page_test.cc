// SPDX-License-Identifier: Apache-2.0
// The daemon's page in a real browser, with a simulated job to look at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "tests/system/browser.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

constexpr int kPatienceSeconds = 60;  // several steps of the history, on a busy machine

// Eight ranks on one node, one of them late to every step.
class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Browser::Path().empty())
      GTEST_SKIP() << "Chromium is not installed (Debian: chromium-headless-shell)";
    daemon_ = std::make_unique<Daemon>(segments_.path());
    job_ = std::make_unique<exporter::ChildProcess>(SimulatorCommand(
        segments_.path(), segments_.path() + "/truth.json",
        {"--layout", "dp", "--ranks-per-node", "8", "--pace", "real", "--rate", "8", "--duration",
         "240", "--slurm-job-id", "4242", "--incident", "slow-rank:rank=5,percent=30", "--env",
         "NCCL_EXPORTER_KERNEL_TIMING=on"}));
    browser_ = std::make_unique<Browser>();
    browser_->Resize(1200, 900, false);
  }

  void Open() { browser_->Open(daemon_->Url("/")); }
  std::string Text(const std::string& selector) {
    const nlohmann::json text =
        browser_->Evaluate("document.querySelector('" + selector + "').textContent");
    return text.is_string() ? text.get<std::string>() : "";
  }
  bool EventuallyShows(const std::string& selector, const std::string& text) {
    return exporter::Eventually([&] { return Text(selector).find(text) != std::string::npos; },
                                kPatienceSeconds);
  }

  const collector::ScratchDirectory segments_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<exporter::ChildProcess> job_;
  std::unique_ptr<Browser> browser_;
};

TEST_F(PageTest, ShowsTheJobNamesTheLateRankAndOutlivesTheDaemon) {
  Open();
  ASSERT_TRUE(EventuallyShows("#tile-processes", "8")) << Text("body");
  EXPECT_TRUE(EventuallyShows("#state", "live"));
  EXPECT_TRUE(
      EventuallyShows("#communicator-list", "8 of 8 ranks here · one node · Slurm job 4242"));
  EXPECT_TRUE(EventuallyShows("#communicator-list", "AllReduce"));

  EXPECT_TRUE(EventuallyShows("#findings", "Rank 5 (GPU 5)")) << Text("#findings");
  EXPECT_THAT(Text("#findings"), testing::HasSubstr("is late: the last to enter"));
  EXPECT_THAT(Text("#findings"), testing::Not(testing::HasSubstr("Rank 4")))
      << "one rank is late, not others";
  EXPECT_THAT(Text("#communicator-list tr.bad"), testing::StartsWith("55"));

  EXPECT_TRUE(exporter::Eventually(
      [&] {
        return browser_->Evaluate(
                   "[...document.querySelectorAll('.line')].some((line) => "
                   "line.getAttribute('d').includes('L'))") == true;
      },
      kPatienceSeconds))
      << "a line of two points and more";
  EXPECT_EQ(browser_->Evaluate(
                "[...document.querySelectorAll('canvas')].some((map) => map.getContext('2d')"
                ".getImageData(0, 0, map.width, map.height).data.some((byte) => byte > 0))"),
            true)
      << "no heat map is drawn";

  const std::string first = Text("#communicator-list tbody td:nth-child(4)");
  EXPECT_TRUE(exporter::Eventually([&] {
    return Text("#communicator-list tbody td:nth-child(4)") != first;
  })) << "updates";

  if (const char* const path = std::getenv("NCCL_EXPORTER_SCREENSHOT"); path != nullptr) {
    exporter::SleepMilliseconds(120000);  // charts with something in them
    std::ofstream(path) << browser_->Screenshot();
  }

  daemon_->process().Signal(SIGKILL);
  EXPECT_TRUE(EventuallyShows("#state", "no answer for"));
  EXPECT_THAT(Text("#communicator-list"), testing::HasSubstr("AllReduce"))
      << "what was known stays";
  const exporter::ChildProcess next(
      {kDaemonPath, "--web.listen-address=127.0.0.1:" + std::to_string(daemon_->port()),
       "--segment.dir=" + segments_.path()});
  EXPECT_TRUE(EventuallyShows("#state", "live"));
  EXPECT_EQ(browser_->Evaluate("document.body.classList.contains('stale')"), false);

  EXPECT_THAT(browser_->errors(), testing::IsEmpty());
  const std::string origin = daemon_->Url("");
  for (const std::string& url : browser_->requests()) EXPECT_THAT(url, testing::StartsWith(origin));
}

TEST_F(PageTest, FitsAPhoneInTheDarkAndNamesEveryChartForScreenReaders) {
  browser_->Resize(360, 740, true);
  Open();
  ASSERT_TRUE(EventuallyShows("#communicator-list", "AllReduce"));
  EXPECT_EQ(browser_->Evaluate("document.documentElement.scrollWidth"), 360)
      << "no sideways scrolling";
  EXPECT_EQ(browser_->Evaluate("getComputedStyle(document.body).backgroundColor"),
            "rgb(16, 21, 27)");
  EXPECT_EQ(browser_->Evaluate("[...document.querySelectorAll('.chart')].filter("
                               "(chart) => chart.getAttribute('role') !== 'img' || "
                               "!chart.getAttribute('aria-label')).length"),
            0);
  EXPECT_EQ(browser_->Evaluate(
                "[...document.querySelectorAll('.wide')].every((box) => box.tabIndex === 0 && "
                "(box.getAttribute('aria-label') || box.getAttribute('aria-labelledby')))"),
            true)
      << "tables that scroll are reached by keyboard and have a name";
  EXPECT_THAT(browser_->errors(), testing::IsEmpty());
  if (const char* const path = std::getenv("NCCL_EXPORTER_SCREENSHOT"); path != nullptr) {
    exporter::SleepMilliseconds(120000);
    std::ofstream(path + std::string(".phone.png")) << browser_->Screenshot();
  }
}

}  // namespace
}  // namespace nccl_exporter
