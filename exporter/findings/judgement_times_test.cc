// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/judgement_times.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace nccl_exporter::exporter {
namespace {

std::string TextOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The default of an option of generate-rules; -1 if there is none.
double Default(const std::string& option) {
  static const std::string kGenerator = TextOf("deploy/prometheus/generate-rules");
  std::smatch found;
  if (std::regex_search(kGenerator, found, std::regex("\\('" + option + "', '([0-9]+)(s|m|h)'")))
    return std::stod(found[1]) * (found[2] == "s" ? 1 : found[2] == "m" ? 60 : 3600);
  if (std::regex_search(kGenerator, found,
                        std::regex("'--" + option + "'[^\\n]*default='?([0-9.]+)")))
    return std::stod(found[1]);
  return -1;
}

// From `begin` to the next empty line.
std::string Rule(const std::string& begin) {
  static const std::string kRules = TextOf("deploy/prometheus/nccl-exporter.rules.yml");
  const size_t place = kRules.find(begin + "\n");
  return place == std::string::npos ? "" : kRules.substr(place, kRules.find("\n\n", place) - place);
}

// What `pattern`, with one group, finds first in `text`; -1 if nothing.
double NumberIn(const std::string& text, const char* pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? std::stod(found[1]) : -1;
}

TEST(JudgementTimesTest, AreTheDefaultsOfTheAlertRules) {
  const JudgementTimes times;
  EXPECT_EQ(Seconds(times.hang), Default("hang-threshold"));
  EXPECT_EQ(Seconds(times.critical), Default("critical-threshold"));
  EXPECT_EQ(Seconds(times.abandoned_for()),
            Seconds(times.hang) *
                NumberIn(TextOf("deploy/prometheus/generate-rules"), "ABANDONED_HANGS = ([0-9]+)"));
  // Still for half of the threshold, and then for so long without looking.
  const std::string goes_on = Rule("  - record: comm_rank:nccl_hang:goes_on");
  EXPECT_EQ(NumberIn(goes_on, "offset ([0-9]+)s"), NumberIn(goes_on, "progress\\[([0-9]+)s"));
  EXPECT_EQ(Seconds(times.went_on()), Seconds(times.hang) / 2);
  EXPECT_EQ(Seconds(times.window), Default("window"));
  EXPECT_EQ(Seconds(times.late_for), 2 * Default("hold"));
  EXPECT_EQ(Seconds(times.late_history), Default("history"));
  EXPECT_EQ(Seconds(times.learning), Default("warm-up"));
  EXPECT_EQ(Seconds(times.interval), Default("interval"));
  EXPECT_EQ(Seconds(times.losses_window()), Default("bandwidth-window"));
  EXPECT_EQ(Seconds(times.halted()), (Default("halted-evaluations") - 1) * Default("interval"));
  EXPECT_EQ(kLateSecondsPerSecond, Default("straggler-threshold"));
  EXPECT_EQ(kStrongLateSecondsPerSecond, Default("strong-deficit"));
  EXPECT_EQ(kStrongJudgements, Default("strong-evaluations"));
  EXPECT_EQ(static_cast<double>(kMinRanks), Default("min-ranks"));
  EXPECT_EQ(kBandwidthRatio, Default("bandwidth-ratio"));
}

TEST(JudgementTimesTest, AreTheNumbersWithinTheRules) {
  const std::string arrivals = Rule("  - record: comm_rank:nccl_last_arrivals:frequent");
  EXPECT_EQ(NumberIn(arrivals, "> 0\\)\\s+> ([0-9.]+)"), kLateShare);
  EXPECT_EQ(
      NumberIn(Rule("  - record: comm_rank:nccl_last_arrivals:share"), "\\n +\\) > ([0-9.]+)\\n"),
      kLateSecondsPerSecond);
  EXPECT_EQ(NumberIn(arrivals, "last_arrivals_total\\[([0-9]+)m\\]") * 60,
            Seconds(JudgementTimes().arrivals_window()));
  const std::string late = Rule("  - alert: NCCLStragglerRank");
  EXPECT_EQ(NumberIn(late, "deficit\\[[0-9]+m\\]\\) >= ([0-9]+)"),
            Seconds(JudgementTimes().late_for / 2) / Seconds(JudgementTimes().interval));
  EXPECT_EQ(NumberIn(Rule("  - alert: NCCLExporterEventsDropped"), "> ([0-9.]+) \\* job_target"),
            kLossShare);
}

TEST(JudgementTimesTest, AreAllScaled) {
  const JudgementTimes scaled = JudgementTimes().Scaled(15);
  EXPECT_EQ(Seconds(scaled.hang), 8);
  EXPECT_EQ(Seconds(scaled.critical), 40);
  EXPECT_EQ(Seconds(scaled.window), 4);
  EXPECT_EQ(Seconds(scaled.late_for), 12);
  EXPECT_EQ(Seconds(scaled.late_history), 40);
  EXPECT_EQ(Seconds(scaled.learning), 20);
  EXPECT_EQ(Seconds(scaled.longest_step), 2);
  EXPECT_EQ(Seconds(scaled.interval), 1);
}

}  // namespace
}  // namespace nccl_exporter::exporter
