// SPDX-License-Identifier: Apache-2.0
// The example node compared whole with testdata, and linted as Prometheus lints.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "exporter/testing/golden_text.h"
#include "exporter/testing/promtool.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {
namespace {

std::string FileText(std::string_view name) {
  std::ifstream file("exporter/series/testdata/" + std::string(name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(GoldenTest, TheExampleReadsAsReviewed) {
  for (const GoldenText& golden : kGoldenTexts) {
    EXPECT_EQ(golden.text(), FileText(golden.file)) << golden.file << ": see write_golden_texts";
  }
}

TEST(GoldenTest, PromtoolFindsNothingToSay) { EXPECT_EQ(PromtoolComplaints(ExampleAsText()), ""); }

TEST(GoldenTest, PromtoolWouldComplain) {
  EXPECT_NE(PromtoolComplaints("# TYPE wrong_total gauge\nwrong_total 1\n"), "");
}

TEST(GoldenTest, TheExampleShowsEveryFamilyOfThePlugin) {
  const std::string text = ExampleAsText();
  for (const MetricRow& row : kMetrics) {
    if (row.scope == LabelScope::kDaemon) continue;
    EXPECT_NE(text.find("# HELP " + std::string(row.name) + ' ' + std::string(row.help) + '\n'),
              std::string::npos)
        << row.name;
  }
}

TEST(GoldenTest, BothFormatsHaveTheSameSamples) {
  std::istringstream text(ExampleAsText());
  std::istringstream openmetrics(ExampleAsOpenMetrics());
  const auto next_sample = [](std::istringstream& lines) {
    std::string line;
    while (std::getline(lines, line)) {
      if (!line.starts_with('#')) return line;
    }
    return std::string();
  };
  for (std::string sample = next_sample(text); !sample.empty(); sample = next_sample(text)) {
    // Only the spelling of whole bounds differs.
    for (const char* whole : {"le=\"1\"", "le=\"4\""}) {
      const size_t at = sample.find(whole);
      if (at != std::string::npos) sample.insert(at + 5, ".0");
    }
    EXPECT_EQ(sample, next_sample(openmetrics));
  }
  EXPECT_EQ(next_sample(openmetrics), "");
}

}  // namespace
}  // namespace nccl_exporter::exporter
