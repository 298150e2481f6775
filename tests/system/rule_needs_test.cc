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

// The expressions, or the queries in texts; without names of rules, comments and other texts.
std::string Queries(bool are_of_texts) {
  std::ifstream file("deploy/prometheus/nccl-exporter.rules.yml");
  std::string expressions;
  bool is_annotation = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("- name:") || line.starts_with("  - ")) {
      is_annotation = false;
    } else if (line.starts_with("    annotations:")) {
      is_annotation = true;
    } else if (are_of_texts ? line.find("| query") != line.npos
                            : !is_annotation && line.find_first_not_of(' ') != line.find('#')) {
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

// Names with a colon before or after them are recorded.
std::set<std::string> FamiliesIn(const std::string& queries) {
  return Found(queries, "(?:^|[^:a-z_])(nccl_(?!job[^a-z0-9_])[a-z0-9_]+)(?![:a-z0-9_])");
}

std::set<std::string> FamiliesOf(MetricPart part) {
  std::set<std::string> families;
  for (const MetricRow& row : kMetrics) {
    if (row.part == part) families.emplace(row.name);
  }
  return families;
}

// Detail of the group nccl_network: it is less than a tenth of the detail, and no other rule needs
// it.
const std::set<std::string> kDetailOfTheNetwork{
    "nccl_network_wait_seconds_total", "nccl_network_timed_bytes_total",
    "nccl_network_timed_operations_total", "nccl_communicator_info"};

TEST(RuleNeedsTest, TheAlertPartIsWhatTheRulesReadButForTheNetwork) {
  std::set<std::string> families = FamiliesOf(MetricPart::kAlerts);
  families.insert(kDetailOfTheNetwork.begin(), kDetailOfTheNetwork.end());
  EXPECT_EQ(FamiliesIn(Queries(false)), families);
}

// Texts say less without them: since when, and whether a process is dead or stopped.
TEST(RuleNeedsTest, TextsReadThreeFamiliesOfTheDetail) {
  std::set<std::string> of_detail = FamiliesIn(Queries(true));
  for (const std::string& family : FamiliesOf(MetricPart::kAlerts)) of_detail.erase(family);
  const std::set<std::string> read{"nccl_operations_last_progress_timestamp_seconds",
                                   "nccl_process_alive", "nccl_process_stopped"};
  EXPECT_EQ(of_detail, read);
}

TEST(RuleNeedsTest, TheRulesUseEveryLabelThatTheyAreSaidToNeed) {
  const std::string expressions = Queries(false);
  for (const DroppableLabel& label : kDroppableLabels) {
    if (!label.is_needed_by_rules) continue;
    const std::string pattern =
        "(?:by|on|ignoring|group_left|group_right) \\([^)]*\\b(" + std::string(label.name) + ")\\b";
    EXPECT_EQ(Found(expressions, pattern).size(), 1u) << label.name;
  }
}

}  // namespace
}  // namespace nccl_exporter
