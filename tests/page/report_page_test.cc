// SPDX-License-Identifier: Apache-2.0
// A report as HTML in a real browser: in each form and on paper it fits, asks for nothing, reports
// no error, and axe-core finds nothing serious.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "tests/page/browser.h"
#include "tests/page/page.h"
#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr double kBegin = 1700000100;  // 2023-11-14T22:15:00Z

// A job of 8 GPUs in an hour: one is waited for, and hangs at the end.
json ReportOfAnHour() {
  json points = json::array(), waiting = json::array();
  for (int i = 0; i < 240; ++i) {
    points.push_back({{"time", kBegin + 15 * i}, {"value", 8}});
    waiting.push_back({{"time", kBegin + 15 * i}, {"value", i < 200 ? 0.7 : 7}});
  }
  const json rank{{"global_rank", "5"}, {"gpu", "5"}, {"hostname", "node-1"}, {"pid", "1005"}};
  const auto event = [&](const char* name, const char* severity, double from, double to) {
    return json{{"name", name},
                {"severity", severity},
                {"text", ""},
                {"labels", rank},
                {"times", {{kBegin + from, kBegin + to}}},
                {"gpu_seconds", 6300}};
  };
  return {
      {"schema", "2.0"},
      {"source", "Prometheus"},
      {"job",
       {{"labels", {{"nccl_job", "4711"}, {"uid", "1000"}}},
        {"names", {"llm-7b"}},
        {"processes", 8},
        {"trouble", ""},
        {"waiting_gpus", 0}}},
      {"from", kBegin},
      {"to", kBegin + 3600},
      {"gpu_seconds", 28800},
      {"nodes", 2},
      {"knows_waiting", true},
      {"waiting_gpu_seconds", 6300},
      {"gpus", points},
      {"waiting", waiting},
      {"traffic",
       {{{"comm_name", "dp"},
         {"collective", "AllReduce"},
         {"ranks", 8},
         {"operations", 4e5},
         {"timed_operations", 4e5},
         {"bytes", 4e12},
         {"busy_seconds", 9000},
         {"least_seconds", 400}}}},
      {"waited_for", {event("", "", 0, 3600)}},
      {"events",
       {event("NCCLStragglerRank", "warning", 90, 3000),
        event("NCCLHangCulprit", "critical", 3120, 3600)}},
      {"facts",
       {{{"name", "plugin_version"}, {"value", "0.1.0"}, {"processes", 8}, {"on", json::array()}}}},
      {"losses", json::array()},
      {"step", "step"},
      {"measures", json::array()},
      {"warnings", json::array()}};
}

class ReportPageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Browser::Path().empty())
      GTEST_SKIP() << "Chromium is not installed (Debian: chromium-headless-shell)";
    std::ofstream(scratch_.path() + "/report.json") << ReportOfAnHour();
    const std::string page = std::filesystem::absolute(scratch_.path() + "/report.html");
    const exporter::Finished made = exporter::RunToEnd(
        {kDaemonPath, "report", scratch_.path() + "/report.json", "--html", page});
    ASSERT_EQ(made.exit_code, 0) << made.output;
    url_ = "file://" + page;
    browser_ = std::make_unique<Browser>();
  }

  // Returns whether the page was loaded to its end.
  bool Open() {
    browser_->Open("about:blank");  // else the page before could be taken for this one
    browser_->Open(url_);
    const std::string is_loaded =
        "document.readyState === 'complete' && location.href === '" + url_ + "'";
    return exporter::Eventually([&] { return browser_->Evaluate(is_loaded) == true; },
                                kPatienceSeconds);
  }

  // In each form, and on paper.
  template <typename Check>
  void InEachForm(const Check& check) {
    for (const Form& form : kForms) {
      for (const bool is_printed : {false, true}) {
        SCOPED_TRACE(std::string(form.name) + (is_printed ? ", printed" : ""));
        browser_->Resize(form.width, form.height, form.is_dark, is_printed);
        ASSERT_TRUE(Open());
        check(form, is_printed);
      }
    }
  }

  std::unique_ptr<Browser> browser_;
  collector::ScratchDirectory scratch_;
  std::string url_;
};

TEST_F(ReportPageTest, FitsEachFormAndAsksForNothing) {
  InEachForm([&](const Form& form, bool is_printed) {
    const auto value = [&](const char* expression) { return browser_->Evaluate(expression); };
    EXPECT_EQ(value("document.querySelector('h1').textContent"),
              "Job 4711 (llm-7b) of user 1000: 8 processes on 2 nodes");
    EXPECT_EQ(value("document.documentElement.scrollWidth"), form.width);
    EXPECT_EQ(value("getComputedStyle(document.body).backgroundColor"),
              is_printed     ? "rgb(255, 255, 255)"
              : form.is_dark ? "rgb(16, 21, 27)"
                             : "rgb(246, 247, 249)");
    EXPECT_EQ(value("document.querySelectorAll('svg').length"), 4);
    EXPECT_EQ(value("[...document.querySelectorAll('rect, path')].every((shape) => "
                    "shape.getBoundingClientRect().width > 0)"),
              true);
    EXPECT_EQ(value("[...document.querySelectorAll('svg')].every((picture) => "
                    "picture.getAttribute('aria-label'))"),
              true);
  });
  EXPECT_THAT(browser_->errors(), testing::IsEmpty());
  for (const std::string& url : browser_->requests())
    EXPECT_THAT(url, testing::AnyOf(url_, "about:blank"));
}

TEST_F(ReportPageTest, NothingSeriousIsFoundByAxe) {
  if (AxeScript().empty()) GTEST_SKIP() << "axe-core is not there: tools/fetch-axe fetches it";
  browser_->RunFirst(AxeScript());
  InEachForm(
      [&](const Form&, bool) { EXPECT_EQ(browser_->Evaluate(kSeriousFindings), json::array()); });
  browser_->Evaluate("document.querySelector('h1').style.color = '#ddd'");
  EXPECT_THAT(browser_->Evaluate(kSeriousFindings).dump(), testing::HasSubstr("color-contrast"))
      << "it would find a fault";
}

}  // namespace
}  // namespace nccl_exporter
