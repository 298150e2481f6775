// SPDX-License-Identifier: Apache-2.0
// Network time, as the real plugin sums it up, against the simulator's account of the same
// operations: every sum to the nanosecond. The plugin's clock shows the job's time, so that nothing
// depends on the machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "tests/system/network/network_job.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

struct Release {
  int api_version;
  int nccl_version;
};
constexpr Release kReleases[]{{2, 22403}, {2, 22502}, {3, 22606}, {4, 22707},
                              {5, 22809}, {6, 23007}, {7, 23103}, {7, 23206}};

struct Job {
  const char* name;
  std::vector<std::string> options;
  int first_version = 22400;
};

// Two nodes. Operations have 8 steps or more, most of them 32.
const Job kJobs[]{
    {"Overlap1", {"--layout", "single", "--network-overlap", "1", "--network-chunk", "4096"}},
    {"Overlap2", {"--layout", "single", "--network-overlap", "2", "--network-chunk", "4096"}},
    {"Overlap4", {"--layout", "single", "--network-overlap", "4", "--network-chunk", "4096"}},
    {"Overlap8", {"--layout", "fsdp", "--network-overlap", "8", "--network-chunk", "131072"}},
    {"PointToPoint", {"--layout", "pp"}},
    {"Groups", {"--layout", "moe", "--aggregate", "4"}},
    {"CapturedGraphs", {"--layout", "mixed", "--graph"}},
    {"SeveralRanksInAProcess",
     {"--layout", "mixed", "--ranks-per-node", "2", "--ranks-per-process", "2"}},
    {"ThreadThatComesRoundSeldom",
     {"--layout", "fsdp", "--network-poll", "100000", "--network-chunk", "65536"}},
    {"ThousandsOfRepeatsForASlowReceiver",
     {"--layout", "single", "--network-chunk", "16384", "--network-poll", "200",
      "--network-repeats", "10000", "--incident", "slow-receiver:rank=0,times=200"}},
    {"ThousandsOfRepeatsOneStepAtATime",
     {"--layout", "single", "--network-chunk", "16384", "--network-poll", "200",
      "--network-repeats", "10000", "--incident", "slow-receiver:rank=0,times=200",
      "--network-overlap", "1"}},
    {"SlowFlush",
     {"--layout", "single", "--network-chunk", "16384", "--incident",
      "slow-flush:rank=0,times=20"}},
    {"SlowAdapter",
     {"--layout", "single", "--network-chunk", "16384", "--incident",
      "slow-adapter:rank=0,times=20"}},
    {"SlowGpu",
     {"--layout", "single", "--network-chunk", "16384", "--incident",
      "slow-gpu:rank=0,percent=60"}},
    {"OperationsOfAnotherProcess", {"--layout", "mixed", "--pxn"}},
    {"AbortedOperations",
     {"--layout", "single", "--network-chunk", "16384", "--fault", "aborted-transfer:every=2"}},
    {"HandlesOfThePast", {"--layout", "mixed", "--fault", "stale-transfer:every=1"}, 22700},
};

void ExpectEqual(const NetworkSums& sums, const json& truth, const std::string& where) {
  for (const auto& state : kNetworkStates) {
    const uint64_t ns = truth["state_ns"][std::string(state.name)].get<uint64_t>() +
                        truth["between_ns"][std::string(state.name)].get<uint64_t>();
    EXPECT_EQ(sums.wait_ns[static_cast<size_t>(state.id)], ns) << state.name << " of " << where;
  }
  EXPECT_EQ(std::accumulate(sums.wait_ns.begin(), sums.wait_ns.end(), uint64_t{0}),
            truth["total_ns"].get<uint64_t>())
      << where;
  EXPECT_EQ(sums.bytes, truth["bytes"].get<uint64_t>()) << where;
  EXPECT_EQ(sums.operations, truth["operations"].get<uint64_t>()) << where;
}

class NetworkTruth : public NetworkJob {
 protected:
  static constexpr char kRanks[] = "--ranks-per-node";
  static constexpr char kNodes[] = "--nodes";
  void PlayOn(const Release& release, Options options, const char* kernel_timing = "on") {
    const auto has = [&](const char* option) {
      return std::find(options.begin(), options.end(), option) != options.end();
    };
    if (!has(kNodes)) options.insert(options.end(), {kNodes, "2"});
    if (!has(kRanks)) options.insert(options.end(), {kRanks, "1"});
    options.insert(options.end(),
                   {"--api-version", std::to_string(release.api_version), "--nccl-version",
                    std::to_string(release.nccl_version), "--steps", "2"});
    Play(options, {{"NCCL_EXPORTER_NETWORK_TIMING", "always"},
                   {"NCCL_EXPORTER_KERNEL_TIMING", kernel_timing}});
  }
};

class EveryJob : public NetworkTruth,
                 public testing::WithParamInterface<std::tuple<Job, Release>> {};

TEST_P(EveryJob, SumsUpEveryStateOfEveryOperationThatItIsShown) {
  const auto& [job, release] = GetParam();
  if (release.nccl_version < job.first_version) GTEST_SKIP() << "the release does not do this";
  PlayOn(release, job.options);
  uint64_t started = 0, ended = 0, all = 0;
  ForEachCommunicator([&](const json& truth, const CommunicatorSums& sums) {
    if (!truth.contains("network")) return;
    const json& network = truth["network"];
    for (const auto& direction : kNetworkDirections) {
      const json& shown = network[std::string(direction.name)];
      ExpectEqual(sums.network[static_cast<size_t>(direction.id)], shown["reported"],
                  std::string(direction.name));
      ended += shown["reported"]["operations"].get<uint64_t>();
      all += shown["all"]["operations"].get<uint64_t>();
    }
    started += network["reported_started"].get<uint64_t>();
    EXPECT_EQ(network["foreign_taken"], 0) << "of another process";
  });
  EXPECT_GT(ended, 0u);
  const std::string name = job.name;
  EXPECT_EQ(started > ended, name == "AbortedOperations");
  EXPECT_EQ(sums_.Lost(Loss::kNetworkIncomplete), started - ended);
  EXPECT_EQ(all > ended, name == "OperationsOfAnotherProcess");
  EXPECT_EQ(sums_.Lost(Loss::kForeignProcess), all - ended);
  for (const Loss loss : {Loss::kNetworkFull, Loss::kNetworkStepMismatch, Loss::kStaleHandle})
    EXPECT_EQ(sums_.Lost(loss), 0u) << kLosses[static_cast<size_t>(loss)].reason;
}

INSTANTIATE_TEST_SUITE_P(EveryRelease, EveryJob,
                         testing::Combine(testing::ValuesIn(kJobs), testing::ValuesIn(kReleases)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "On" +
                                  std::to_string(std::get<1>(test.param).nccl_version);
                         });

// Proxy operations then also show when an operation is complete.
class EveryRelease : public NetworkTruth, public testing::WithParamInterface<Release> {};

TEST_P(EveryRelease, StillCompletesOperationsByTheirProxies) {
  for (const char* layout : {"moe", "mixed"}) {
    SCOPED_TRACE(layout);
    PlayOn(GetParam(), {"--layout", layout, "--network", "all", "--ranks-per-node", "2"}, "off");
    uint64_t completed = 0;
    ForEachCommunicator([&](const json& truth, const CommunicatorSums& sums) {
      EXPECT_EQ(truth["timing_source"], "proxy");
      for (const auto& [function, counts] : truth["functions"].items()) {
        const auto i = static_cast<size_t>(FunctionByName(function));
        EXPECT_EQ(sums.completed[i], counts["completed"].get<uint64_t>()) << function;
        EXPECT_EQ(sums.timed_operations[i], 0u) << function;
        completed += sums.completed[i];
      }
    });
    EXPECT_GT(completed, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, EveryRelease, testing::ValuesIn(kReleases),
                         [](const auto& test) { return std::to_string(test.param.nccl_version); });

}  // namespace
}  // namespace nccl_exporter
