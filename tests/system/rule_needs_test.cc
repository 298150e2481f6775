// SPDX-License-Identifier: Apache-2.0
// Needs of the rules of deploy/prometheus, as the catalogue lists them, against the rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "proto/droppable_labels.h"

namespace nccl_exporter {
namespace {

// The expressions, and the queries in texts; without names of rules, comments and other texts.
std::string Expressions() {
  std::ifstream file("deploy/prometheus/nccl-exporter.rules.yml");
  std::string expressions;
  bool is_annotation = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("- name:") || line.starts_with("  - ")) {
      is_annotation = false;
    } else if (line.starts_with("    annotations:")) {
      is_annotation = true;
    } else if (line.find("| query") != line.npos ||
               (!is_annotation && line.find_first_not_of(' ') != line.find('#'))) {
      expressions += line + '\n';
    }
  }
  return expressions;
}

// All matches of the first group of `pattern`.
std::set<std::string> Found(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::set<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), expression);
       at != std::sregex_iterator(); ++at) {
    found.insert(at->str(1));
  }
  return found;
}

TEST(RuleNeedsTest, TheAlertPartIsWhatTheRulesRead) {
  std::set<std::string> listed;
  for (const MetricRow& row : kMetrics) {
    if (row.part == MetricPart::kAlerts) listed.emplace(row.name);
  }
  // Names with a colon before or after them are recorded.
  EXPECT_EQ(Found(Expressions(), "(?:^|[^:a-z_])(nccl_[a-z0-9_]+)(?![:a-z0-9_])"), listed);
}

TEST(RuleNeedsTest, TheRulesUseEveryLabelThatTheyAreSaidToNeed) {
  const std::string expressions = Expressions();
  for (const DroppableLabel& label : kDroppableLabels) {
    if (!label.is_needed_by_rules) continue;
    const std::string pattern =
        "(?:by|on|ignoring|group_left|group_right) \\([^)]*\\b(" + std::string(label.name) + ")\\b";
    EXPECT_EQ(Found(expressions, pattern).size(), 1u) << label.name;
  }
}

}  // namespace
}  // namespace nccl_exporter
