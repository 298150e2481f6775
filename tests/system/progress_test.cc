// SPDX-License-Identifier: Apache-2.0
// Ranks that have come equally far say so, whatever NCCL announces and however operations are
// timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/system/daemon.h"

namespace nccl_exporter {
namespace {

struct Way {
  const char* name;
  std::vector<std::string> options;
  const char* kernel_timing;
  bool completion_is_seen;
};

class EqualProgress : public testing::TestWithParam<Way> {};

TEST_P(EqualProgress, ShowsTheSameSequencesOnAllRanks) {
  const collector::ScratchDirectory segments, results;
  Daemon daemon(segments.path());
  std::vector<std::string> options{"--steps", "20", "--ranks-per-node", "4"};
  options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
  const exporter::Finished job = exporter::RunToEnd(
      SimulatorCommand(segments.path(), results.path() + "/truth.json", options),
      {{"NCCL_EXPORTER_KERNEL_TIMING", GetParam().kernel_timing}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
  ASSERT_EQ(job.exit_code, 0) << job.output;
  const Exposition scrape = daemon.Scrape();
  std::map<std::string, std::set<double>> started, completed;
  for (const Sample& sample : scrape.Find("nccl_collective_started_sequence")) {
    started[sample.labels.at("comm")].insert(sample.value);
  }
  for (const Sample& sample : scrape.Find("nccl_collective_completed_sequence")) {
    completed[sample.labels.at("comm")].insert(sample.value);
  }
  double most = 0;
  for (const auto& [comm, values] : started) {
    EXPECT_EQ(values.size(), 1u) << comm;
    most = std::max(most, *values.begin());
    if (GetParam().completion_is_seen) {
      EXPECT_EQ(completed[comm], values) << comm;
    }
  }
  EXPECT_GE(most, 20);
  EXPECT_EQ(completed.empty(), !GetParam().completion_is_seen);
  for (const Sample& sample : scrape.Find("nccl_operations_in_flight")) EXPECT_EQ(sample.value, 0);
  EXPECT_TRUE(scrape.Find("nccl_operations_oldest_in_flight_start_timestamp_seconds").empty());
}

INSTANTIATE_TEST_SUITE_P(
    Ways, EqualProgress,
    testing::Values(
        Way{"Eager", {"--layout", "3d"}, "on", true},
        Way{"EagerWithoutTiming", {"--layout", "dp"}, "off", false},
        Way{"EagerByProxies", {"--layout", "mixed", "--network", "all"}, "off", true},
        Way{"Groups", {"--layout", "dp", "--aggregate", "8"}, "on", true},
        Way{"GraphReplays", {"--layout", "dp", "--graph"}, "on", true},
        Way{"BroadcastsThatAreAnnounced", {"--layout", "ladder", "--api-version", "5"}, "on", true},
        Way{"BroadcastsThatAreNot", {"--layout", "ladder", "--api-version", "6"}, "on", true}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nccl_exporter
