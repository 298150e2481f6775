// SPDX-License-Identifier: Apache-2.0
// A slow GPU, a slow link, a receiver that is late and a slow flush, each in minutes of simulated
// time in which a tenth of the time is timed: how often the largest state of a minute is that of
// the cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/system/network/network_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

constexpr int kMinutes = 20;
constexpr double kLeastRight = 0.95;

struct Cause {
  const char* name;
  const char* incident;
  int rank;  // where it is seen, of two ranks on two nodes
  NetworkDirection direction;
  NetworkState state;
};

struct Traffic {
  const char* name;
  std::vector<std::string> options;
};

constexpr Cause kCauses[] = {
    {"Gpu", "slow-gpu:rank=1,percent=50", 1, NetworkDirection::kSend, NetworkState::kGpu},
    {"Wire", "slow-link:node=1,to=0,times=2000", 1, NetworkDirection::kSend,
     NetworkState::kNetwork},
    {"Peer", "slow-receiver:rank=1,times=2000", 0, NetworkDirection::kSend, NetworkState::kPeer},
    {"Flush", "slow-flush:rank=1,times=2000", 1, NetworkDirection::kRecv, NetworkState::kFlush},
};

class EveryCause : public NetworkJob,
                   public testing::WithParamInterface<std::tuple<Cause, Traffic>> {
 protected:
  // States of one minute: the largest state of the operations that were timed, and of all. A minute
  // may have no timed operation.
  struct Minute {
    std::optional<NetworkState> timed;
    NetworkState all{};
  };
  Minute PlayMinute(int seed) {
    const auto& [cause, traffic] = GetParam();
    Options options{"--nodes",    "2",           "--ranks-per-node",
                    "1",          "--seed",      std::to_string(seed),
                    "--incident", cause.incident};
    options.insert(options.end(), traffic.options.begin(), traffic.options.end());
    Play(options, {{"NCCL_EXPORTER_NETWORK_TIMING", "0.1"}});
    Minute minute;
    ForEachCommunicator([&](const json& truth, const CommunicatorSums& sums) {
      if (truth["rank"] != cause.rank || !truth.contains("network")) return;
      const auto& timed = sums.network[static_cast<size_t>(cause.direction)].wait_ns;
      const json& all = truth["network"][std::string(
          kNetworkDirections[static_cast<size_t>(cause.direction)].name)]["all"]["state_ns"];
      const auto largest = std::ranges::max_element(timed);
      if (*largest != 0) minute.timed = static_cast<NetworkState>(largest - timed.begin());
      minute.all = std::ranges::max_element(kNetworkStates, {}, [&](const auto& state) {
                     return all[std::string(state.name)].template get<uint64_t>();
                   })->id;
    });
    return minute;
  }
};

TEST_P(EveryCause, IsTheLargestStateOfNearlyEveryMinute) {
  int right = 0;
  for (int seed = 1; seed <= kMinutes; ++seed) {
    const Minute minute = PlayMinute(seed);
    ASSERT_EQ(minute.all, std::get<Cause>(GetParam()).state) << "the incident is too small";
    right += minute.timed == minute.all ? 1 : 0;
  }
  RecordProperty("right", right);
  EXPECT_GE(right, std::ceil(kLeastRight * kMinutes));
}

INSTANTIATE_TEST_SUITE_P(
    OfTheFour, EveryCause,
    testing::Combine(
        testing::ValuesIn(kCauses),
        testing::Values(Traffic{"Steady",
                                {"--layout", "single", "--rate", "20", "--steps", "1200"}},
                        Traffic{"StepsOfASecond",
                                {"--layout", "dp", "--rate", "1", "--steps", "60",
                                 "--network-chunk", "4194304", "--network-poll", "20000"}})),
    [](const auto& test) {
      return std::string(std::get<0>(test.param).name) + std::get<1>(test.param).name;
    });

}  // namespace
}  // namespace nccl_exporter
