// SPDX-License-Identifier: Apache-2.0
// Processes of the whole system that start, end and die in any order: counts stay right, and each
// has its identity.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/system/end_to_end.h"

namespace nccl_exporter {
namespace {

// Patience of a test that waits for a job, on a busy machine.
constexpr int kPatienceSeconds = 90;

using Processes = EndToEnd;

TEST_F(Processes, LosesNoCountWhenTheDaemonIsKilledAndStartedAgain) {
  auto daemon = std::make_unique<Daemon>(segments_.path());
  exporter::ChildProcess job(
      Simulator({"--pace", "real", "--duration", "4", "--rate", "50", "--ranks-per-node", "2"}));
  ASSERT_TRUE(exporter::Eventually(
      [&] { return Sum(daemon->Scrape(), "nccl_collective_operations_total") > 50; }));
  const double before = Sum(daemon->Scrape(), "nccl_collective_operations_total");
  daemon->process().Signal(SIGKILL);
  daemon->process().Wait();
  exporter::SleepMilliseconds(300);
  daemon = std::make_unique<Daemon>(segments_.path());
  EXPECT_GE(Sum(daemon->Scrape(), "nccl_collective_operations_total"), before);
  EXPECT_EQ(job.Wait(), 0) << job.AllOutput();
  ExpectBothEqual(daemon->Scrape(), ReadTruth(TruthPath()));
}

TEST_F(Processes, KeepsTheCountsOfAKilledRankForTheRetentionTimeAndThenForgetsThem) {
  Daemon daemon(segments_.path(), {"--segment.retention=8s"});
  exporter::ChildProcess job(
      Simulator({"--pace", "real", "--duration", "14", "--rate", "20", "--ranks-per-node", "2",
                 "--layout", "dp", "--kill-rank", "1", "--kill-step", "20"}));
  ASSERT_TRUE(exporter::Eventually([&] {
    return daemon.Scrape().Value("nccl_exporter_segments", {{"state", "exited"}}).value_or(0) == 1;
  }));
  const double at_kill = Sum(daemon.Scrape(), "nccl_collective_operations_total", {{"rank", "1"}});
  EXPECT_GT(at_kill, 0);
  EXPECT_EQ(segments_.Files(".seg").size(), 2u);
  exporter::SleepMilliseconds(1500);
  EXPECT_EQ(Sum(daemon.Scrape(), "nccl_collective_operations_total", {{"rank", "1"}}), at_kill);
  EXPECT_TRUE(exporter::Eventually([&] { return segments_.Files(".seg").size() == 1; }, 30));
  EXPECT_TRUE(daemon.Scrape().Find("nccl_collective_operations_total", {{"rank", "1"}}).empty());
  EXPECT_FALSE(daemon.Scrape().Find("nccl_collective_operations_total", {{"rank", "0"}}).empty());
  EXPECT_EQ(job.Wait(), 0) << job.AllOutput();
  const nlohmann::json truth = ReadTruth(TruthPath());
  for (const nlohmann::json& rank : truth["ranks"]) {
    if (rank["rank"] != 1) continue;
    EXPECT_TRUE(rank["killed"].get<bool>());
    double operations = 0;
    for (const auto& communicator : rank["communicators"]) {
      for (const auto& [function, true_counts] : communicator["functions"].items()) {
        for (const auto& [size, counts] : true_counts["sizes"].items())
          operations += counts["operations"].get<double>();
      }
    }
    EXPECT_EQ(operations, at_kill);
  }
}

TEST_F(Processes, ServesAFindingAsAMetricUntilItsTroubleIsOver) {
  Daemon daemon(segments_.path(), {"--segment.retention=2s", "--findings.time-scale=100"});
  const auto hangs = [&] {
    return daemon.Scrape()
        .Value("nccl_exporter_findings", {{"kind", "hang_culprit"}, {"severity", "critical"}})
        .value_or(-1);
  };
  EXPECT_EQ(hangs(), 0);
  exporter::ChildProcess job(
      Simulator({"--pace", "real", "--duration", "300", "--rate", "20", "--ranks-per-node", "4",
                 "--layout", "dp", "--incident", "missing-call:rank=1,from=2"}),
      {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}});
  ASSERT_TRUE(exporter::Eventually([&] { return hangs() == 1; }, kPatienceSeconds));
  const nlohmann::json shown = nlohmann::json::parse(daemon.Get("/api/v1/findings").body);
  EXPECT_EQ(Sum(daemon.Scrape(), "nccl_exporter_findings"), shown["findings"].size());
  job.Signal(SIGINT);
  job.Wait();
  EXPECT_TRUE(exporter::Eventually(
      [&] { return hangs() == 0 && Sum(daemon.Scrape(), "nccl_exporter_findings") == 0; },
      kPatienceSeconds))
      << daemon.Get("/api/v1/findings").body;
}

// Regression: with NCCL's defaults the page was green, and no late rank could be seen.
TEST_F(Processes, AJobWithTheDefaultsOfNccl229IsNotJudgedAndSaysWhy) {
  Daemon daemon(segments_.path());
  exporter::ChildProcess job(Simulator({"--pace", "real", "--duration", "300", "--rate", "20",
                                        "--ranks-per-node", "4", "--layout", "dp", "--nccl-version",
                                        "22907", "--env", "NCCL_ALLGATHERV_ENABLE=1"}));
  nlohmann::json found;
  EXPECT_TRUE(exporter::Eventually(
      [&] {
        found = nlohmann::json::parse(daemon.Get("/api/v1/findings").body)["findings"];
        return found.size() == 1;
      },
      kPatienceSeconds))
      << found;
  EXPECT_EQ(found[0]["kind"], "not_judged");
  EXPECT_EQ(found[0]["severity"], "info");
  EXPECT_EQ(found[0]["next"], "Set NCCL_ALLGATHERV_ENABLE=0 in the job.");
  job.Signal(SIGINT);
  job.Wait();
}

TEST_F(Processes, ShowsWhatAKilledRankWasIn) {
  Daemon daemon(segments_.path());
  const exporter::Finished job =
      exporter::RunToEnd(Simulator({"--steps", "20", "--ranks-per-node", "2", "--layout", "dp",
                                    "--kill-rank", "1", "--kill-step", "10", "--kill-in-flight"}),
                         {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}});
  EXPECT_EQ(job.exit_code, 0) << job.output;
  const Exposition scrape = daemon.Scrape();
  const double started =
      scrape.Value("nccl_collective_started_sequence", {{"rank", "1"}}).value_or(0);
  EXPECT_GT(scrape.Value("nccl_operations_in_flight", {{"rank", "1"}}).value_or(0), 0);
  EXPECT_LT(scrape.Value("nccl_collective_completed_sequence", {{"rank", "1"}}).value_or(started),
            started);
  EXPECT_EQ(scrape
                .Find("nccl_operations_oldest_in_flight_start_timestamp_seconds",
                      {{"rank", "1"}, {"function", "AllReduce"}})
                .size(),
            1u);
  EXPECT_TRUE(
      scrape.Find("nccl_operations_oldest_in_flight_start_timestamp_seconds", {{"rank", "0"}})
          .empty());
}

TEST_F(Processes, ServesTheSameNumbersFromTwoDaemons) {
  Daemon first(segments_.path()), second(segments_.path());
  const nlohmann::json truth =
      RunJob({"--steps", "30", "--ranks-per-node", "4", "--layout", "mixed"});
  ExpectEqualsTruth(first.Scrape(), truth);
  ExpectEqualsTruth(second.Scrape(), truth);
}

TEST_F(Processes, ServesAJobThatEndedBeforeTheDaemonBegan) {
  const nlohmann::json truth =
      RunJob({"--steps", "30", "--ranks-per-node", "4", "--layout", "mixed"});
  Daemon daemon(segments_.path());
  ExpectBothEqual(daemon.Scrape(), truth);
}

TEST_F(Processes, ReportsTheIdentityOfJobProcessAndGpu) {
  Daemon daemon(segments_.path());
  RunJob({"--steps", "3", "--ranks-per-node", "2", "--layout", "dp", "--slurm-job-id", "4711",
          "--env", "POD_NAME=trainer-%r", "--env", "POD_NAMESPACE=research"});
  const Exposition scrape = daemon.Scrape();
  const auto info = scrape.Find(
      "nccl_rank_info", {{"nccl_job", "4711"}, {"pod", "trainer-1"}, {"namespace", "research"}});
  ASSERT_EQ(info.size(), 1u);
  EXPECT_EQ(info[0].labels.at("global_rank"), "1");
  EXPECT_EQ(info[0].labels.at("local_rank"), "1");
  EXPECT_TRUE(info[0].labels.at("gpu_uuid").starts_with("GPU-")) << info[0].labels.at("gpu_uuid");
  EXPECT_FALSE(info[0].labels.at("pci_bus_id").empty());
  EXPECT_EQ(
      scrape.Find("nccl_communicator_info", {{"nccl_version", "2.30.7"}, {"api_version", "6"}})
          .size(),
      2u);
  EXPECT_EQ(
      scrape.Value("nccl_communicator_ranks", {{"rank", "0"}, {"global_rank", "0"}}).value_or(0),
      2);
}

TEST_F(Processes, NamesTheChainedPluginAndTheEventsThatItGets) {
  const std::filesystem::path plugin =
      std::filesystem::absolute("simulator/librecording-plugin.so");
  Daemon daemon(segments_.path());
  const auto play = [&](const char* kernel_timing, const char* events) {
    RunJob({"--steps", "3", "--ranks-per-node", "2", "--layout", "dp"},
           {{"NCCL_EXPORTER_CHAIN", plugin},
            {"RECORDING_MASK", "4095"},
            {"NCCL_EXPORTER_KERNEL_TIMING", kernel_timing}});
    const Labels labels{{"chained_plugin", "recording"}, {"chained_events", events}};
    EXPECT_EQ(daemon.Scrape().Find("nccl_rank_info", labels).size(), 2u) << events;
  };
  play("on", "all");
  play("off", "no_kernel_events");
}

TEST_F(Processes, NamesNoRankByTheNumberOfAProcessWithSeveralGpus) {
  Daemon daemon(segments_.path());
  RunJob({"--steps", "3", "--ranks-per-node", "4", "--ranks-per-process", "2", "--layout", "dp"});
  const Exposition scrape = daemon.Scrape();
  const auto info = scrape.Find("nccl_rank_info");
  const auto alive = scrape.Find("nccl_process_alive");
  EXPECT_EQ(info.size(), 4u);
  EXPECT_EQ(alive.size(), 2u);
  for (const Sample& sample : info) {
    EXPECT_FALSE(sample.labels.contains("global_rank"));
    EXPECT_EQ(sample.labels.at("local_rank"), "");
  }
  for (const Sample& sample : alive) EXPECT_FALSE(sample.labels.contains("global_rank"));
  EXPECT_EQ(nlohmann::json::parse(daemon.Get("/api/v1/node").body)["processes"][1]["global_rank"],
            "");
}

TEST_F(Processes, FindsTheLibraryByNcclsOwnSearchRule) {
  const std::filesystem::path library = std::filesystem::absolute(kPluginPath);
  Daemon daemon(segments_.path());
  std::vector<std::string> command{kSimulatorPath,
                                   "--segment-dir",
                                   segments_.path(),
                                   "--truth",
                                   TruthPath(),
                                   "--steps",
                                   "5",
                                   "--ranks-per-node",
                                   "1"};
  const exporter::Finished job = exporter::RunToEnd(
      command, {{"NCCL_PROFILER_PLUGIN", "exporter"}, {"LD_LIBRARY_PATH", library.parent_path()}});
  EXPECT_EQ(job.exit_code, 0) << job.output;
  ExpectEqualsTruth(daemon.Scrape(), ReadTruth(TruthPath()));
  EXPECT_EQ(segments_.Files(".seg").size(), 1u);
}

}  // namespace
}  // namespace nccl_exporter
