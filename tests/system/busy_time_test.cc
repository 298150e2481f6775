// SPDX-License-Identifier: Apache-2.0
// No rank is busy in a communicator for longer than its job ran, whatever NCCL reports.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "tests/system/end_to_end.h"

namespace nccl_exporter {
namespace {

// Kernels of one communicator run one after the other. A kernel may have collectives, sends and
// receives, each with its whole time.
constexpr const char* kBusy[] = {"nccl_collective_busy_seconds_total",
                                 "nccl_p2p_send_busy_seconds_total",
                                 "nccl_p2p_recv_busy_seconds_total"};
// 20 steps, 2 in a second, and what the last one takes longer.
constexpr double kJobSeconds = 10.5;

struct Release {
  const char* nccl;
  int api_version;
};

class BusyTime : public EndToEnd, public testing::WithParamInterface<Release> {
 protected:
  // By kind, communicator and rank, of a job of each layout.
  std::map<std::tuple<std::string, std::string, std::string>, double> Seconds(
      const std::string& kernel_timing) const {
    Daemon daemon(segments_.path());
    for (const char* const layout : {"dp", "fsdp", "tp", "pp", "moe", "3d", "mixed"}) {
      SCOPED_TRACE(layout);
      RunJob({"--nccl-version", GetParam().nccl, "--api-version",
              std::to_string(GetParam().api_version), "--layout", layout, "--nodes", "2",
              "--ranks-per-node", "2", "--steps", "20", "--rate", "2", "--compute-share", "0.6"},
             {{"NCCL_EXPORTER_KERNEL_TIMING", kernel_timing}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
    }
    const Exposition scrape = daemon.Scrape();
    EXPECT_FALSE(scrape.Find("nccl_collective_operations_total").empty());
    std::map<std::tuple<std::string, std::string, std::string>, double> seconds;
    for (const char* const family : kBusy) {
      for (const Sample& sample : scrape.Find(family))
        seconds[{family, sample.labels.at("comm"), sample.labels.at("rank")}] += sample.value;
    }
    EXPECT_FALSE(seconds.empty());
    return seconds;
  }
};

TEST_P(BusyTime, OfKernelsIsNoLongerThanTheJob) {
  for (const auto& [key, seconds] : Seconds("on"))
    EXPECT_LE(seconds, kJobSeconds) << std::get<0>(key) << " of " << std::get<1>(key);
}

// Regression, operator's trial A2: the host launches a step at its begin, so proxy operations of a
// rank waited for each other for six times as long as the job ran.
TEST_P(BusyTime, IsNoneByProxyOperations) {
  for (const auto& [key, seconds] : Seconds("off"))
    EXPECT_EQ(seconds, 0) << std::get<0>(key) << " of " << std::get<1>(key);
}

INSTANTIATE_TEST_SUITE_P(EveryRelease, BusyTime,
                         testing::Values(Release{"22304", 1}, Release{"22403", 2},
                                         Release{"22606", 3}, Release{"22707", 4},
                                         Release{"22809", 5}, Release{"22907", 6},
                                         Release{"23007", 6}, Release{"23102", 7},
                                         Release{"23206", 7}),
                         [](const auto& test) { return std::string(test.param.nccl); });

}  // namespace
}  // namespace nccl_exporter
