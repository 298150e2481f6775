// SPDX-License-Identifier: Apache-2.0
// Network time of the operations that are timed in windows of a tenth of the time, against that of
// all operations: five minutes of simulated time, or NETWORK_SHARE_MINUTES. Where the windows begin
// depends on the wall clock, so that runs differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>

#include "tests/system/network/network_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr double kShare = 0.1;
constexpr double kMostOfAState = 0.05;    // of the time of all states
constexpr double kMostOfBytes = 0.05;     // deviation of the bytes that are scaled up
constexpr double kMostOfRounding = 1e-4;  // of an operation's bytes to those of its channels
constexpr uint32_t kRanks = 2;

double Seconds() {
  const char* const minutes = std::getenv("NETWORK_SHARE_MINUTES");
  return 60 * (minutes != nullptr ? std::atof(minutes) : 5);
}

struct Traffic {
  const char* name;
  std::vector<std::string> options;
  double steps_per_second;
};

// By function, as the collector weighs them: of what a direction carries.
double BusBytesOf(const std::array<uint64_t, kFunctionCount>& bytes, NetworkDirection direction) {
  const Function other = direction == NetworkDirection::kSend ? Function::kRecv : Function::kSend;
  double sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto function = static_cast<Function>(i);
    if (function != other) sum += BusBytes(function, bytes[i], kRanks);
  }
  return sum;
}

class EveryTraffic : public NetworkJob, public testing::WithParamInterface<Traffic> {
 protected:
  void PlayFor(double seconds) {
    const Traffic& traffic = GetParam();
    Options options{
        "--nodes",          "2",
        "--ranks-per-node", "1",
        "--rate",           std::to_string(traffic.steps_per_second),
        "--steps",          std::to_string(static_cast<int>(seconds * traffic.steps_per_second))};
    options.insert(options.end(), traffic.options.begin(), traffic.options.end());
    Play(options, {{"NCCL_EXPORTER_NETWORK_TIMING", std::to_string(kShare)}});
  }
  // Visits each direction of each communicator that used it.
  template <typename Visitor>
  void ForEachDirection(Visitor visit) const {
    int directions = 0;
    ForEachCommunicator([&](const json& truth, const CommunicatorSums& sums) {
      if (!truth.contains("network")) return;
      for (const auto& direction : kNetworkDirections) {
        const json& all = truth["network"][std::string(direction.name)]["all"];
        if (all["operations"] == 0) continue;
        SCOPED_TRACE(std::string(direction.name));
        ++directions;
        visit(direction.id, sums, all);
      }
    });
    EXPECT_GT(directions, 0);
  }
  static void CompareShares(const NetworkSums& timed, const json& all) {
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
  }
};

TEST_P(EveryTraffic, HasInItsWindowsTheStatesAndTheBytesOfAllOfIt) {
  PlayFor(Seconds());
  double largest = 0;
  ForEachDirection([&](NetworkDirection direction, const CommunicatorSums& sums, const json& all) {
    const NetworkSums& timed = sums.network[static_cast<size_t>(direction)];
    CompareShares(timed, all);
    const double timed_bus_bytes = BusBytesOf(sums.network_timed_bytes, direction);
    EXPECT_NEAR(static_cast<double>(timed.bytes) / timed_bus_bytes, 1, kMostOfRounding)
        << "the plugin counts an operation as timed that is not, or the reverse";
    const double bytes =
        static_cast<double>(timed.bytes) * BusBytesOf(sums.bytes, direction) / timed_bus_bytes;
    const double deviation = bytes / all["bytes"].get<double>() - 1;
    EXPECT_LE(std::abs(deviation), kMostOfBytes) << deviation;
    largest = std::max(largest, std::abs(deviation));
  });
  RecordProperty("largest_deviation_of_bytes", std::to_string(largest));
  for (const Loss loss : {Loss::kNetworkFull, Loss::kNetworkIncomplete, Loss::kNetworkStepMismatch})
    EXPECT_EQ(sums_.Lost(loss), 0u) << kLosses[static_cast<size_t>(loss)].reason;
}

// The first call of the capture is in no window (docs/plugin.md). The period of the windows is two
// seconds.
INSTANTIATE_TEST_SUITE_P(
    SteadyAndPeriodic, EveryTraffic,
    testing::Values(Traffic{"Steady", {"--layout", "single"}, 20},
                    Traffic{"SteadyUpTo226", {"--layout", "single", "--api-version", "3"}, 20},
                    Traffic{"StepsOfATenthOfASecond", {"--layout", "moe"}, 10},
                    Traffic{"StepsOfASecond", {"--layout", "dp"}, 1},
                    Traffic{"StepsOfASecondUpTo227", {"--layout", "dp", "--api-version", "4"}, 1},
                    Traffic{"ShardedStepsOfASecond", {"--layout", "fsdp"}, 1},
                    Traffic{"PipelinesOfASecond", {"--layout", "pp"}, 1},
                    Traffic{"AllKindsInStepsOfASecond", {"--layout", "ladder"}, 1},
                    Traffic{"AllKindsInStepsOfThePeriod", {"--layout", "ladder"}, 0.5},
                    Traffic{"ThreeDimensionsInStepsOfASecond", {"--layout", "3d"}, 1},
                    Traffic{"StepsOfThePeriod", {"--layout", "mixed"}, 0.5},
                    Traffic{"CapturedGraphs", {"--layout", "dp", "--graph"}, 2}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nccl_exporter
