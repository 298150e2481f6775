// SPDX-License-Identifier: Apache-2.0
// The plugin's counts equal the ground truth under every incident.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

class IncidentTruth : public testing::TestWithParam<const char*> {
 protected:
  nlohmann::json Run(std::vector<std::string> options) const {
    options.insert(options.end(), {"--nodes", "2", "--ranks-per-node", "2", "--steps", "40",
                                   "--incident", GetParam()});
    const exporter::Finished job = exporter::RunToEnd(
        SimulatorCommand(segments_.path(), scratch_.path() + "/truth.json", options),
        {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
    EXPECT_EQ(job.exit_code, 0) << job.output;
    return ReadTruth(scratch_.path() + "/truth.json");
  }

  collector::ScratchDirectory segments_, scratch_;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, IncidentTruth,
    testing::Values("slow-rank:rank=1", "slow-gpu:rank=2,every=1,for=0.5",
                    "slow-node:node=1,ramp=2", "slow-link:times=9", "slow-adapter:rank=1,times=9",
                    "slow-receiver:rank=2,times=9", "slow-flush:rank=3,times=9",
                    "missing-call:rank=3,from=2", "mismatched-call:rank=1,from=1",
                    "kill:rank=2,from=2", "network-hang:from=1", "moving:percent=50,every=1",
                    "varying", "warm-up:until=2", "pause:from=1,every=1,seconds=0.5",
                    "spikes:percent=20", "evaluation:from=1,until=2"),
    [](const auto& test) {
      std::string name = test.param;
      name = name.substr(0, name.find(':'));
      name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
      return name;
    });

TEST_P(IncidentTruth, IsWhatThePluginCounted) {
  for (const char* layout : {"dp", "mixed"}) {
    const nlohmann::json truth = Run({"--layout", layout});
    ExpectSegmentsEqualTruth(segments_.path(), truth);
    for (const std::string& file : segments_.Files())
      std::filesystem::remove(segments_.path() + "/" + file);
  }
}

TEST_P(IncidentTruth, IsWhatThePluginCountedInGraphs) {
  ExpectSegmentsEqualTruth(segments_.path(), Run({"--layout", "3d", "--graph"}));
}

}  // namespace
}  // namespace nccl_exporter
