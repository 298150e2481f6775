// SPDX-License-Identifier: Apache-2.0
// A small job on the real NCCL, one process a rank, which writes down the ground truth of what it
// did: the profiler plugin is whatever NCCL_PROFILER_PLUGIN names. Ends with 77, and a reason,
// where it cannot run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/gpu/gpu.h"
#include "tests/gpu/rank_processes.h"
#include "tests/gpu/require.h"
#include "tests/gpu/workload.h"

namespace nccl_exporter {
namespace {

constexpr int kCannotRun = 77;

struct JobOptions {
  WorkloadShape shape;
  bool one_host = false;
  bool probe = false;
  int limit_seconds = 600;
  std::string truth;
};

std::string PartPath(const JobOptions& options, int rank) {
  return options.shape.directory + "/" + std::to_string(rank) + ".json";
}

// In a rank's process.
int RunRank(const JobOptions& options, int rank) {
  NameRequirements(rank);
  WorkloadShape shape = options.shape;
  shape.rank = rank;
  const nlohmann::json truth = {
      {"rank", rank},    {"local_rank", rank}, {"node", options.one_host ? 0 : rank},
      {"pid", getpid()}, {"killed", false},    {"communicators", RunWorkload(shape)}};
  std::ofstream file(PartPath(options, rank));
  file << truth;
  file.close();
  Require(static_cast<bool>(file), "ground truth");
  return 0;
}

// In a process of its own, for it touches CUDA: says whether and on what the job can run.
int Probe(const JobOptions& options) {
  std::string reason;
  const int gpus = CountGpus(&reason);
  if (gpus == 0 || (options.one_host && gpus < options.shape.ranks)) {
    printf("%s\n",
           gpus == 0 ? reason.c_str() : "fewer GPUs than ranks, which on one host need one each");
    return kCannotRun;
  }
  printf("%s\n", DescribeMachine(gpus).c_str());
  return 0;
}

bool JoinParts(const JobOptions& options) {
  nlohmann::json truth = {{"ranks", nlohmann::json::array()}};
  for (int rank = 0; rank < options.shape.ranks; ++rank) {
    std::ifstream part(PartPath(options, rank));
    truth["ranks"].push_back(nlohmann::json::parse(part));
  }
  std::ofstream file(options.truth, std::ios::trunc);
  file << truth.dump(1) << '\n';
  file.close();
  return static_cast<bool>(file);
}

int RunJob(JobOptions options) {
  std::string pattern = std::filesystem::temp_directory_path() / "nccl-jobXXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) return perror(pattern.c_str()), 1;
  options.shape.directory = pattern;
  RankProcesses job;
  for (int rank = 0; rank < options.shape.ranks; ++rank) {
    job.Start({.rank = rank, .ranks = options.shape.ranks, .separate_hosts = !options.one_host}, {},
              [&options, rank] { return RunRank(options, rank); });
  }
  const bool is_done =
      job.Wait(options.limit_seconds) && (options.truth.empty() || JoinParts(options));
  std::filesystem::remove_all(options.shape.directory);
  return is_done ? 0 : 1;
}

}  // namespace
}  // namespace nccl_exporter

int main(int argc, char** argv) {
  using namespace nccl_exporter;
  JobOptions options;
  CLI::App app("A small job on the real NCCL, one process a rank.");
  app.add_option("--ranks", options.shape.ranks, "processes, which take the GPUs in turn")
      ->check(CLI::Range(2, 64));
  app.add_option("--largest-bytes", options.shape.largest_bytes, "largest message")
      ->check(CLI::Range(size_t{1} << 20, size_t{1} << 32));
  app.add_flag("--one-host", options.one_host,
               "let NCCL know that the ranks share a host; each needs a GPU");
  app.add_option("--limit", options.limit_seconds, "seconds after which the job is given up");
  app.add_option("--truth", options.truth, "file for the ground truth");
  app.add_flag("--probe", options.probe, "only say what the job would run on");
  CLI11_PARSE(app, argc, argv);

  if (options.probe) return Probe(options);
  return RunJob(options);
}
