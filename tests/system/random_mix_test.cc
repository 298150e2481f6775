// SPDX-License-Identifier: Apache-2.0
// Random mixes of everything that NCCL can be called for (groups, splits, graphs, threads,
// Broadcasts of several roots, AlltoAll), on all releases: ncclCommDestroy returns, counts equal
// the ground truth, and so does every duration.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {
namespace {

using Options = std::vector<std::string>;

// Each way to run ranks and to call is that of one of them at least. RANDOM_MIX_SEEDS asks for
// more.
constexpr int kSeeds = 5;

int Seeds() {
  const char* asked = std::getenv("RANDOM_MIX_SEEDS");
  return asked == nullptr ? kSeeds : std::atoi(asked);
}

struct MixedRelease {
  const char* name;
  const char* nccl_version;
  const char* api_version;
  const char* allgatherv;  // NCCL_ALLGATHERV_ENABLE
  bool has_kernel_events;  // the plugin asks for them
};

const MixedRelease kReleases[] = {
    {"v2_26_6", "22606", "3", "1", true},
    {"v2_27_7", "22707", "4", "1", true},
    {"v2_28_9", "22809", "5", "1", true},
    {"v2_30_7", "23007", "6", "1", false},
    {"v2_30_7_without_allgatherv", "23007", "6", "0", true},
    {"v2_31_3", "23103", "7", "1", false},
    {"v2_31_3_without_allgatherv", "23103", "7", "0", true},
    {"v2_32_6", "23206", "7", "1", false},
    {"v2_32_6_without_allgatherv", "23206", "7", "0", true},
};

void PrintTo(const MixedRelease& release, std::ostream* out) { *out << release.name; }

class RandomMix : public testing::TestWithParam<MixedRelease> {
 protected:
  // The seed chooses what NCCL and the program are, as it chooses the calls.
  static Options OptionsOf(const MixedRelease& release, int seed) {
    Options options{"--layout",
                    "random",
                    "--seed",
                    std::to_string(seed),
                    "--steps",
                    "12",
                    "--ranks-per-node",
                    "4",
                    "--api-version",
                    release.api_version,
                    "--nccl-version",
                    release.nccl_version,
                    "--env",
                    std::string("NCCL_ALLGATHERV_ENABLE=") + release.allgatherv};
    if (seed % 2 == 1) options.push_back("--graph");
    if (seed % 3 == 1)
      options.insert(options.end(), {"--ranks-per-process", "2", "--thread-per-rank"});
    if (seed % 3 == 2) options.insert(options.end(), {"--ranks-per-process", "4"});
    if (seed % 5 == 4) options.push_back("--nonblocking");
    const bool has_two_nodes = seed % 4 == 2;
    // Communicators of three generations on two nodes have more series than a daemon serves.
    if (seed % 7 == 3)
      options.insert(options.end(), {"--recreate-every", has_two_nodes ? "7" : "5"});
    if (has_two_nodes) options.insert(options.end(), {"--nodes", "2", "--network", "all"});
    return options;
  }

  // By what NCCL was asked for: the best source of time that a mask of any communicator has had.
  static bool HasKernelEvents(const nlohmann::json& truth) {
    for (const nlohmann::json& rank : truth["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        if (communicator["asked_timing"].get<std::string>().starts_with("kernel")) return true;
      }
    }
    return false;
  }
};

TEST_P(RandomMix, EndsAndIsCountedAndTimedExactly) {
  for (int seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE("--seed " + std::to_string(seed));
    const collector::ScratchDirectory segments, results;
    const std::string truth_path = results.path() + "/truth.json";
    const exporter::Finished job = exporter::RunToEnd(
        SimulatorCommand(segments.path(), truth_path, OptionsOf(GetParam(), seed)),
        {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
    ASSERT_EQ(job.exit_code, 0) << job.output;
    const nlohmann::json truth = ReadTruth(truth_path);
    EXPECT_GT(TotalOperations(truth), 0u);
    EXPECT_EQ(HasKernelEvents(truth), GetParam().has_kernel_events);
    Daemon daemon(segments.path());
    const Exposition scrape = daemon.Scrape();
    for (const Sample& dropped : scrape.Find("nccl_exporter_series_dropped_total"))
      ASSERT_EQ(dropped.value, 0) << dropped.labels.at("reason");
    ExpectEqualsTruth(scrape, truth);
    ExpectSegmentsEqualTruth(segments.path(), truth);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Releases, RandomMix, testing::ValuesIn(kReleases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace nccl_exporter
