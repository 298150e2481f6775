// SPDX-License-Identifier: Apache-2.0
#include "exporter/node/lateness.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace nccl_exporter::exporter {
namespace {

// The expression of the rule that calls a rank late by its arrivals.
std::string RuleOfArrivals() {
  std::ifstream file("deploy/prometheus/nccl-exporter.rules.yml");
  const std::string rules{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = rules.find("- record: comm_rank:nccl_last_arrivals:share\n");
  if (begin == std::string::npos) return "";
  return rules.substr(begin, rules.find("\n\n", begin) - begin);
}

// What `pattern`, with one group, finds first in `text`; -1 if nothing.
double NumberIn(const std::string& text, const char* pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? std::stod(found[1]) : -1;
}

TEST(LatenessTest, HasTheNumbersOfTheAlertRules) {
  const std::string rule = RuleOfArrivals();
  EXPECT_EQ(NumberIn(rule, "compared_operations_total\\[[0-9]+m\\]\\)\\) > 0\\)\\s+> ([0-9.]+)"),
            kLateShare);
  EXPECT_EQ(NumberIn(rule, "\\n +\\) > ([0-9.]+)\\n"), kLateSecondsPerSecond);
  EXPECT_EQ(NumberIn(rule, "last_arrivals_total\\[([0-9]+)m\\]") * 60, kLateWindowSeconds);
}

TEST(LatenessTest, WantsAShareOfOperationsAndOfTimeAndNotTooFewOfThem) {
  const auto is_late = [](uint64_t compared, uint64_t last, double share_of_time) {
    return IsLate({.seconds = 100,
                   .counts = {.compared = compared,
                              .last = last,
                              .lateness_ns = static_cast<uint64_t>(share_of_time * 100 * 1e9)}});
  };
  EXPECT_TRUE(is_late(100, 90, 0.1));
  EXPECT_FALSE(is_late(100, 80, 0.1));
  EXPECT_FALSE(is_late(100, 90, 0.02));
  EXPECT_FALSE(is_late(9, 9, 0.1));
}

}  // namespace
}  // namespace nccl_exporter::exporter
