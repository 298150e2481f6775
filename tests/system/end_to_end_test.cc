// SPDX-License-Identifier: Apache-2.0
// The whole system: a simulated job drives the real plugin library as NCCL does, the real daemon
// reads the segments, and what it exports equals the simulator's ground truth to the last
// operation.
#include "tests/system/end_to_end.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace nccl_exporter {
namespace {

// --- Every version of the API, one process and eight

struct Shape {
  int api_version;
  int processes;
};

class EveryApiVersion : public EndToEnd, public testing::WithParamInterface<Shape> {};

TEST_P(EveryApiVersion, ExportsExactlyWhatTheJobDid) {
  Daemon daemon(segments_.path());
  const Shape shape = GetParam();
  Options options{"--api-version", std::to_string(shape.api_version),
                  "--layout",      "mixed",
                  "--steps",       "40",
                  "--network",     "all"};
  if (shape.processes == 1) {
    options.insert(options.end(), {"--ranks-per-node", "4", "--ranks-per-process", "4"});
  } else {
    options.insert(options.end(), {"--nodes", "2", "--ranks-per-node", "4"});
  }
  // Kernel timing whatever /dev/shm this machine has; API v1 and v2 fall back to proxy operations.
  const nlohmann::json truth =
      RunJob(options, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
  ExpectBothEqual(daemon.Scrape(), truth);
}

TEST_P(EveryApiVersion, ExportsExactlyWhatTheJobDidWithProxyTiming) {
  Daemon daemon(segments_.path());
  const Shape shape = GetParam();
  const nlohmann::json truth =
      RunJob({"--api-version", std::to_string(shape.api_version), "--layout", "mixed", "--steps",
              "20", "--network", "all", "--nodes", shape.processes == 1 ? "1" : "2",
              "--ranks-per-node", "4", "--ranks-per-process", shape.processes == 1 ? "4" : "1"},
             {{"NCCL_EXPORTER_KERNEL_TIMING", "off"}});
  ExpectBothEqual(daemon.Scrape(), truth);
}

INSTANTIATE_TEST_SUITE_P(OneAndEightProcesses, EveryApiVersion,
                         testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1},
                                         Shape{5, 1}, Shape{6, 1}, Shape{7, 1}, Shape{1, 8},
                                         Shape{2, 8}, Shape{3, 8}, Shape{4, 8}, Shape{5, 8},
                                         Shape{6, 8}, Shape{7, 8}),
                         [](const auto& test) {
                           return "v" + std::to_string(test.param.api_version) + "_processes_" +
                                  std::to_string(test.param.processes);
                         });

// --- Durations by size

TEST_F(EndToEnd, ExportsDurationsBySizeOnRequest) {
  Daemon daemon(segments_.path(), {"--metrics.duration-by-size"});
  const nlohmann::json truth =
      RunJob({"--layout", "3d", "--steps", "20", "--network", "all", "--ranks-per-node", "4"},
             {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  const Exposition scrape = daemon.Scrape();
  size_t compared = 0;
  for (const nlohmann::json& rank : truth["ranks"]) {
    for (const nlohmann::json& communicator : rank["communicators"]) {
      for (const auto& [function, counts] : communicator["functions"].items()) {
        const std::string family = function == "Send"   ? "nccl_p2p_send_duration_seconds"
                                   : function == "Recv" ? "nccl_p2p_recv_duration_seconds"
                                                        : "nccl_collective_duration_seconds";
        Labels labels{{"comm", communicator["id"]},
                      {"rank", std::to_string(communicator["rank"].get<int>())}};
        if (function != "Send" && function != "Recv") labels["collective"] = function;
        for (const auto& [size, timed] : counts["sizes"].items()) {
          if (timed["timed_operations"] == 0) continue;
          ++compared;
          labels["size"] = size;
          EXPECT_EQ(scrape.Value(family + "_count", labels),
                    timed["timed_operations"].get<double>())
              << function << size;
          EXPECT_NEAR(scrape.Value(family + "_sum", labels).value_or(0),
                      timed["busy_ns"].get<double>() / 1e9, 1e-9)
              << function << size;
        }
      }
    }
  }
  EXPECT_GT(compared, 16u);
  for (const Sample& sample : scrape.Find("nccl_collective_duration_seconds_count", {}))
    EXPECT_TRUE(sample.labels.contains("size"));
}

// --- Labels of the user's own

TEST_F(EndToEnd, ExportsTheLabelsThatAJobAsksFor) {
  Daemon daemon(segments_.path());
  RunJob({"--steps", "2", "--ranks-per-node", "2"}, {{"NCCL_EXPORTER_LABELS", "team=x,run=y z"}});
  const Exposition scrape = daemon.Scrape();
  const Labels wanted{{"team", "x"}, {"run", "y z"}};
  EXPECT_FALSE(scrape.Find("nccl_rank_info", wanted).empty());
  EXPECT_EQ(scrape.Find("nccl_rank_info", wanted).size(), scrape.Find("nccl_rank_info", {}).size());
  EXPECT_TRUE(scrape.Find("nccl_collective_operations_total", wanted).empty());
  Daemon everywhere(segments_.path(), {"--metrics.labels-everywhere"});
  const Exposition labelled = everywhere.Scrape();
  for (const char* family :
       {"nccl_rank_info", "nccl_collective_operations_total", "nccl_process_alive"}) {
    EXPECT_FALSE(labelled.Find(family, wanted).empty()) << family;
    EXPECT_EQ(labelled.Find(family, wanted).size(), labelled.Find(family, {}).size()) << family;
  }
}

// --- Labels of the site

TEST_F(EndToEnd, AThousandReloadsOfTheSitesLabelsLoseNoSeries) {
  const std::string directory = segments_.path() + "/labels.d";
  std::filesystem::create_directory(directory);
  Daemon daemon(segments_.path(), {"--labels.dir", directory});
  RunJob({"--steps", "2", "--ranks-per-node", "2"}, {{"SLURM_JOB_ID", "4711"}});
  const auto families = {"nccl_rank_info", "nccl_collective_operations_total",
                         "nccl_process_alive"};
  const Exposition before = daemon.Scrape();
  for (const char* family : families) ASSERT_FALSE(before.Find(family, {}).empty()) << family;
  constexpr int kReloads = 1000;
  std::atomic<int> begun = 0, written = 0;
  std::thread writer([&] {
    while (written < kReloads) {
      std::ofstream(directory + "/.new")
          << R"({"match": {"slurm_job_id": 4711}, "labels": {"team": ")" << ++begun << "\"}}";
      std::filesystem::rename(directory + "/.new", directory + "/jobs.json");
      ++written;
      // Kernels before 6.13 count the times of files in steps of up to 10 ms. Within one, the file
      // after the next may look like this one.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::set<int> teams;
  // The first scrape may be before the first file; the last one is after the last file.
  for (bool is_last = false; !is_last && !HasFailure();) {
    const int least = written;
    is_last = least == kReloads;
    const Exposition scrape = daemon.Scrape();
    const int most = begun;
    for (const char* family : families) {
      const std::vector<Sample> series = scrape.Find(family, {});
      EXPECT_EQ(series.size(), before.Find(family, {}).size()) << family;
      for (const Sample& sample : series) {
        const auto team = sample.labels.find("team");
        const int number = team == sample.labels.end() ? 0 : std::stoi(team->second);
        EXPECT_TRUE(least <= number && number <= most)
            << family << " of file " << number << " between " << least << " and " << most;
        teams.insert(number);
      }
    }
  }
  writer.join();
  EXPECT_GT(teams.size(), 20u) << "few scrapes ran beside the writer";
}

// --- Every kind of workload

struct Workload {
  const char* name;
  Options options;
  const char* kernel_timing = "on";
};

class EveryWorkload : public EndToEnd, public testing::WithParamInterface<Workload> {};

TEST_P(EveryWorkload, IsCountedAndTimedExactly) {
  Daemon daemon(segments_.path());
  Options options{"--steps", "30", "--ranks-per-node", "4"};
  options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
  const nlohmann::json truth = RunJob(
      options,
      {{"NCCL_EXPORTER_KERNEL_TIMING", GetParam().kernel_timing}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
  ExpectBothEqual(daemon.Scrape(), truth);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EveryWorkload,
    testing::Values(
        Workload{"DataParallel", {"--layout", "dp"}},
        Workload{"FullyShardedDataParallel", {"--layout", "fsdp"}},
        Workload{"TensorParallel", {"--layout", "tp"}},
        Workload{"PipelineParallel", {"--layout", "pp"}},
        Workload{"MixtureOfExperts", {"--layout", "moe"}},
        Workload{"MixtureOfExpertsOn2_31", {"--layout", "moe", "--api-version", "7"}},
        Workload{"MixtureOfExpertsOn2_32",
                 {"--layout", "moe", "--api-version", "7", "--nccl-version", "23206"}},
        Workload{
            "SymmetricWindowsOn2_32",
            {"--layout", "fsdp", "--symmetric", "--api-version", "7", "--nccl-version", "23206"}},
        Workload{"AggregatedSymmetricWindowsOn2_31",
                 {"--layout", "fsdp", "--symmetric", "--aggregate", "3", "--api-version", "7"}},
        Workload{"AggregatedGroups", {"--layout", "dp", "--aggregate", "8"}},
        Workload{"CapturedGraphs", {"--layout", "mixed", "--graph"}},
        Workload{"NonBlocking", {"--layout", "mixed", "--nonblocking"}},
        Workload{"CollNet", {"--layout", "dp", "--nodes", "2", "--collnet"}},
        Workload{"SplitAndShrink",
                 {"--layout", "dp", "--split-at-step", "5", "--shrink-at-step", "10"}},
        Workload{"Revoked", {"--layout", "dp", "--elastic", "revoke@10"}},
        Workload{"RevokedBetweenNodes",
                 {"--layout", "fsdp", "--nodes", "2", "--elastic", "revoke@10"}},
        Workload{"ShrunkByAbort",
                 {"--layout", "mixed", "--api-version", "5", "--elastic", "shrink-abort@10"}},
        Workload{"Grown", {"--layout", "dp", "--elastic", "grow@10"}},
        Workload{"CreateAndDestroyLoop", {"--layout", "dp", "--recreate-every", "2"}},
        Workload{"SeveralGpusInOneProcessAThreadEach",
                 {"--layout", "mixed", "--ranks-per-process", "4", "--thread-per-rank"}},
        Workload{"SeveralGpusInOneProcessOneThread",
                 {"--layout", "mixed", "--ranks-per-process", "4"}},
        Workload{"CoarseGpuClocks", {"--layout", "tp", "--gpu-granularity", "1024"}},
        Workload{"MixtureOfExpertsByProxyTiming", {"--layout", "moe", "--network", "all"}, "off"},
        Workload{"MixtureOfExpertsByProxyTimingOn2_24",
                 {"--layout", "moe", "--network", "all", "--api-version", "2"},
                 "off"},
        Workload{"UnsoundRelease",
                 {"--layout", "mixed", "--network", "all", "--api-version", "7", "--nccl-version",
                  "23102"},
                 "auto"},
        Workload{"NoFinalize", {"--layout", "dp", "--no-finalize"}}),
    [](const auto& test) { return test.param.name; });

// From 2.31 on the two sides count an AlltoAll alike, sends to oneself included.
TEST_F(EndToEnd, TimesEveryMessageOfAnAlltoAllFrom231On) {
  for (const char* release : {"23103", "23206"}) {
    SCOPED_TRACE(release);
    const nlohmann::json truth = RunJob({"--steps", "30", "--ranks-per-node", "4", "--layout",
                                         "moe", "--api-version", "7", "--nccl-version", release},
                                        {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
    uint64_t operations = 0;
    uint64_t timed = 0;
    for (const nlohmann::json& rank : truth["ranks"]) {
      for (const nlohmann::json& communicator : rank["communicators"]) {
        EXPECT_EQ(communicator["timing_source"], "kernel");
        if (!communicator["functions"].contains("Send")) continue;
        for (const nlohmann::json& size : communicator["functions"]["Send"]["sizes"]) {
          operations += size["operations"].get<uint64_t>();
          timed += size["timed_operations"].get<uint64_t>();
        }
      }
    }
    EXPECT_EQ(operations, 30u * 6 * 4 * 4);  // steps, AlltoAlls, ranks, peers
    EXPECT_EQ(timed, operations);
    ExpectSegmentsEqualTruth(segments_.path(), truth);
  }
}

}  // namespace
}  // namespace nccl_exporter
