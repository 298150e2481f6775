// SPDX-License-Identifier: Apache-2.0
// A report as JSON and back, as text of each width, and as a page that needs nothing else.
#include "exporter/cli/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <stdexcept>

#include "exporter/cli/report/report_text.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kBegin = 1700000100;

Report Example(const std::string& name = "dp") {
  Report report{.source = "Prometheus",
                .job = {.labels = {{"nccl_job", "4711"}, {"uid", "1000"}}, .processes = 8}};
  report.from = kBegin;
  report.to = kBegin + 3600;
  report.gpu_seconds = 8 * 3600;
  report.nodes = 2;
  report.knows_waiting = true;
  report.waiting_gpu_seconds = 2880;
  for (double time = kBegin; time < report.to; time += 15) {
    report.gpus.push_back({time, 8});
    report.waiting.push_back({time, 0.8});
  }
  report.traffic = {{.comm_name = name,
                     .collective = "AllReduce",
                     .ranks = 8,
                     .operations = 1e6,
                     .timed_operations = 1e6,
                     .bytes = 1e12,
                     .busy_seconds = 9000,
                     .least_seconds = 765}};
  const SampleLabels rank{{"global_rank", "5"}, {"gpu", "1"}, {"hostname", name}};
  report.waited_for = {
      {.name = "", .labels = rank, .times = {{kBegin, kBegin + 600}}, .gpu_seconds = 2800}};
  report.events = {{.name = "NCCLStragglerRank",
                    .severity = "warning",
                    .labels = rank,
                    .times = {{kBegin + 90, kBegin + 600}}},
                   {.name = "NCCLStragglerSuspect",
                    .severity = "info",
                    .labels = {{"cause", "cpu_wait"}, {"global_rank", "5"}},
                    .times = {{kBegin + 90, kBegin + 600}}}};
  report.facts = {{.name = "team", .value = "a", .processes = 7},
                  {.name = "team", .value = name, .processes = 1, .on = {"global rank 5"}}};
  report.step = "step";
  report.measures = {{"step", {0.5, 0.51}}, {"transfer in AllReduce of " + name, {0.1}}};
  report.losses = {{.cause = "drift", .operations = 3}};
  report.warnings = {"store-1: timeout"};
  return report;
}

TEST(ReportTest, JsonIsReadAgainAsItWas) {
  const std::string json = ReportJson(Example());
  EXPECT_EQ(json.find('\n'), json.size() - 1);
  EXPECT_EQ(ReportJson(ReportIn(json)), json);
  EXPECT_EQ(ReportText(ReportIn(json), 80), ReportText(Example(), 80));
}

// Eight adapters of each node, and one rank that has another one.
TEST(ReportTest, OfALabelWithManyValuesTheMostFrequentAndTheRarestAreShown) {
  Report report = Example();
  report.facts = {{.name = "team", .value = "a", .processes = 7},
                  {.name = "team", .value = "", .processes = 1}};
  for (int adapter = 0; adapter < 8; ++adapter)
    report.facts.push_back(
        {.name = "NCCL_IB_HCA", .value = "mlx5_" + std::to_string(adapter), .processes = 100});
  report.facts.push_back(
      {.name = "NCCL_IB_HCA", .value = "", .processes = 1, .on = {"global rank 5"}});
  const std::string text = ReportText(report, 80);
  for (const char* shown :
       {"NCCL_IB_HCA  mlx5_0", "NCCL_IB_HCA  mlx5_5", "NCCL_IB_HCA  mlx5_6", "NCCL_IB_HCA  mlx5_7",
        "NCCL_IB_HCA  not set", "NCCL_IB_HCA  and 4 more values", "team "})
    EXPECT_THAT(text, HasSubstr(shown));
  EXPECT_THAT(text, Not(testing::AnyOf(HasSubstr("mlx5_1"), HasSubstr("mlx5_4"))));
  EXPECT_THAT(text, HasSubstr("global rank 5"));
  EXPECT_EQ(text.find("not set"), text.rfind("not set")) << "a label that is not known";
}

// A file may be from anybody.
TEST(ReportTest, AFileThatIsNoReportIsRefusedInOneLine) {
  std::string newer = ReportJson(Example());
  newer.replace(newer.find("\"2.0\""), 5, "\"3.0\"");
  const auto with = [](std::string_view count) {
    std::string changed = ReportJson(Example());
    const std::string_view nodes = "\"nodes\":2";
    return changed.replace(changed.find(nodes), nodes.size(), "\"nodes\":" + std::string(count));
  };
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1"), std::string(100000, '['),
        std::string(R"({"schema":1})"), std::string(R"({"schema":"2.0","source":"\n"})"), newer,
        with("1e30"), with("-1.5"), with("-1")}) {
    try {
      ReportIn(text);
      ADD_FAILURE() << "is read: " << text;
    } catch (const std::runtime_error& wrong) {
      EXPECT_THAT(wrong.what(), HasSubstr("it is no report: "));
      EXPECT_THAT(wrong.what(), Not(HasSubstr("\n")));
    }
  }
}

TEST(ReportTest, TextHasTheSummaryAndFitsItsColumns) {
  const std::string text = ReportText(Example(), 0);
  EXPECT_THAT(text, testing::StartsWith(
                        "Job 4711 of user 1000: 8 processes on 2 nodes\n"
                        "2023-11-14 22:15:00 to 23:15:00 UTC (60 min), from Prometheus\n\n"
                        "The answer is incomplete: store-1: timeout.\n"
                        "48 GPU min of 8 GPU h were lost by waiting: 10.0 %.\n"
                        "The others waited most for global rank 5 (GPU 1, dp): 46.7 GPU min.\n"
                        "22:16:30 to 22:25:00: a late rank, and at the same time cpu_wait, global "
                        "rank 5.\n"));
  EXPECT_THAT(text, HasSubstr("\nDiffers between ranks:\n"));
  for (const size_t columns : {60, 80, 120}) {
    std::istringstream lines(ReportText(Example(std::string(40, 'n')), columns));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(Width(line), columns) << line;
  }
}

TEST(ReportPageTest, NeedsNothingFromElsewhereAndRunsNothing) {
  const std::string page = ReportPage(Example());
  for (const char* const reference : {"http:", "https:", "//", "src=", "href=", "url(", "@import",
                                      "<script", "<link", "<img", "<iframe", "onload"})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("@media print"));
  EXPECT_THAT(page, HasSubstr("lost by waiting: 10.0 %"));
}

TEST(ReportPageTest, HasAChartOfEachKind) {
  const std::string page = ReportPage(Example());
  const std::regex chart("<svg class=\"chart\" role=\"img\" aria-label=\"([^\"]+)\"");
  std::vector<std::string> titles;
  for (std::sregex_iterator at(page.begin(), page.end(), chart), end; at != end; ++at)
    titles.push_back((*at)[1]);
  EXPECT_THAT(titles, testing::ElementsAre(
                          "GPUs of the job, and GPUs that wait", "Ranks that the others waited for",
                          "Alerts and findings", "GPU time by communicator and function"));
  // Alerts begin at 90 s of the hour and last for 510 s.
  EXPECT_THAT(page, HasSubstr("x=\"25.0\" y=\"1.5\" width=\"141.7\""));
  Report of_node = Example();
  of_node.gpus = of_node.waiting = {};
  EXPECT_THAT(ReportPage(of_node), Not(HasSubstr("GPUs that wait")));
}

TEST(ReportPageTest, SentencesAndChartsThatAreCutSaySo) {
  Report report = Example();
  report.events.clear();
  for (int i = 0; i < 30; ++i)
    report.events.push_back({.name = "NCCLHangCulprit",
                             .severity = "critical",
                             .labels = {{"global_rank", std::to_string(i)}},
                             .times = {{kBegin + 60 * i, kBegin + 60 * i + 30}}});
  const std::string page = ReportPage(report);
  EXPECT_THAT(page, HasSubstr("<p>The table of alerts and findings has 22 more.</p>"));
  EXPECT_THAT(page, HasSubstr("aria-label=\"Alerts and findings, the first 24\""));
  EXPECT_THAT(page, HasSubstr("aria-label=\"Ranks that the others waited for\""));
}

// Names come from jobs.
TEST(ReportPageTest, MarkupInNamesIsText) {
  const std::string page = ReportPage(Example("<script>alert(\"1\")</script>&\x1b[2J"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;?[2J"));
}

TEST(ReportPageTest, AnEmptyReportIsAPageAsWell) {
  const Report empty{.source = "Prometheus", .job = {}};
  EXPECT_THAT(ReportPage(empty), HasSubstr("Waits are not known"));
  EXPECT_THAT(ReportPage(empty), Not(HasSubstr("<svg")));
}

}  // namespace
}  // namespace nccl_exporter::exporter
