// SPDX-License-Identifier: Apache-2.0
// Network time of the operations that are timed in windows of a tenth of the time, against that of
// all operations: five minutes of simulated time, or NETWORK_SHARE_MINUTES. Where the windows begin
// depends on the wall clock, so that runs differ.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "tests/system/network/network_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr double kShare = 0.1;
constexpr double kMostOfAState = 0.05;  // of the time of all states

double Seconds() {
  const char* const minutes = std::getenv("NETWORK_SHARE_MINUTES");
  return 60 * (minutes != nullptr ? std::atof(minutes) : 5);
}

struct Traffic {
  const char* name;
  std::vector<std::string> options;
  double steps_per_second;
  double most_of_bytes;  // deviation of the bytes over the share, of all bytes
};

class EveryTraffic : public NetworkJob, public testing::WithParamInterface<Traffic> {
 protected:
  static void Compare(const NetworkSums& timed, const json& all) {
    const auto timed_ns = static_cast<double>(
        std::accumulate(timed.wait_ns.begin(), timed.wait_ns.end(), uint64_t{0}));
    ASSERT_GT(timed_ns, 0);
    for (const auto& state : kNetworkStates) {
      const double share =
          static_cast<double>(timed.wait_ns[static_cast<size_t>(state.id)]) / timed_ns;
      const double true_share =
          all["state_ns"][std::string(state.name)].get<double>() / all["total_ns"].get<double>();
      EXPECT_NEAR(share, true_share, kMostOfAState) << state.name;
    }
    const double bytes = static_cast<double>(timed.bytes) / all["bytes"].get<double>();
    EXPECT_NEAR(bytes / kShare, 1, GetParam().most_of_bytes);
  }
};

TEST_P(EveryTraffic, HasInItsWindowsTheStatesAndTheBytesOfAllOfIt) {
  const Traffic& traffic = GetParam();
  Options options{
      "--nodes",          "2",
      "--ranks-per-node", "1",
      "--rate",           std::to_string(traffic.steps_per_second),
      "--steps",          std::to_string(static_cast<int>(Seconds() * traffic.steps_per_second))};
  options.insert(options.end(), traffic.options.begin(), traffic.options.end());
  Play(options, {{"NCCL_EXPORTER_NETWORK_TIMING", std::to_string(kShare)}});
  int directions = 0;
  ForEachCommunicator([&](const json& truth, const CommunicatorSums& sums) {
    if (!truth.contains("network")) return;
    for (const auto& direction : kNetworkDirections) {
      const json& all = truth["network"][std::string(direction.name)]["all"];
      if (all["operations"] == 0) continue;
      SCOPED_TRACE(direction.name);
      ++directions;
      Compare(sums.network[static_cast<size_t>(direction.id)], all);
    }
  });
  EXPECT_GT(directions, 0);
  for (const Loss loss : {Loss::kNetworkFull, Loss::kNetworkIncomplete, Loss::kNetworkStepMismatch})
    EXPECT_EQ(sums_.Lost(loss), 0u) << kLosses[static_cast<size_t>(loss)].reason;
}

// Steps that a window meets as a whole or not at all are drawn by the windows: the number of those
// that it meets has a binomial distribution. Four of its standard deviations.
double OfWholeSteps(double steps_per_second) {
  return 4 * std::sqrt((1 - kShare) / (kShare * Seconds() * steps_per_second));
}

// The first call of the capture is in no window (docs/plugin.md).
INSTANTIATE_TEST_SUITE_P(
    SteadyAndPeriodic, EveryTraffic,
    testing::Values(Traffic{"Steady", {"--layout", "single"}, 20, 0.05},
                    Traffic{
                        "SteadyUpTo226", {"--layout", "single", "--api-version", "3"}, 20, 0.05},
                    Traffic{"StepsOfATenthOfASecond", {"--layout", "moe"}, 10, 0.05},
                    Traffic{"StepsOfASecond", {"--layout", "dp"}, 1, OfWholeSteps(1)},
                    Traffic{"StepsOfTwoSeconds", {"--layout", "mixed"}, 0.5, OfWholeSteps(0.5)},
                    Traffic{"CapturedGraphs", {"--layout", "dp", "--graph"}, 2, OfWholeSteps(2)}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nccl_exporter
