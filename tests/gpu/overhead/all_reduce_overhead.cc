// SPDX-License-Identifier: Apache-2.0
// Cost of the plugin for a job: the same AllReduce without a plugin, with one that receives the
// same events and does nothing, and with ours. The three jobs live side by side and take turns
// block by block, so that a drift of the machine hits all.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "collector/collector.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/overhead/paced_rank.h"

namespace nccl_exporter {
namespace {

constexpr int kCannotRun = 77;
constexpr int kLimitSeconds = 60;  // for the processes to end
// A block's aim: long against the clock's and the scheduler's grain.
constexpr double kBlockNs = 30e6;
constexpr uint64_t kMostOperations = 400;  // of a block: fewer than the plugin follows at a time
constexpr std::array<size_t, 9> kSizes{8,       1 << 10,  16 << 10,  128 << 10, 1 << 20,
                                       8 << 20, 32 << 20, 128 << 20, 256 << 20};

struct OverheadOptions {
  int ranks = 2;
  int repetitions = 15;
  size_t largest_bytes = 256 << 20;
  bool one_host = false;
  bool graph = false;
  std::string plugin;
  std::string empty_plugin;
};

// One job: its ranks run a block together.
class PacedJob {
 public:
  PacedJob(RankProcesses* processes, const OverheadOptions& options,
           const std::string& meeting_path, const std::map<std::string, std::string>& environment) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      ranks_.push_back(std::make_unique<PacedRank>(
          processes,
          RankPlacement{.rank = rank, .ranks = options.ranks, .separate_hosts = !options.one_host},
          environment, meeting_path, options.largest_bytes));
    }
  }

  // The slowest rank's time, and the ranks' mean of CPU time.
  BlockCost Run(const Block& block) {
    BlockCost sum;
    for (auto& rank : ranks_) Expect(rank->Begin(block));
    for (auto& rank : ranks_) {
      BlockCost cost;
      Expect(rank->End(&cost));
      sum.time_ns = std::max(sum.time_ns, cost.time_ns);
      sum.call_ns += cost.call_ns / static_cast<double>(ranks_.size());
      sum.cpu_ns += cost.cpu_ns / static_cast<double>(ranks_.size());
    }
    return sum;
  }

 private:
  static void Expect(bool lives) {
    if (lives) return;
    fprintf(stderr, "a rank has ended: see above\n");
    exit(1);
  }

  std::vector<std::unique_ptr<PacedRank>> ranks_;
};

double Median(std::vector<BlockCost> costs, double BlockCost::*member) {
  const auto middle = costs.begin() + static_cast<std::ptrdiff_t>(costs.size() / 2);
  std::nth_element(
      costs.begin(), middle, costs.end(),
      [member](const BlockCost& a, const BlockCost& b) { return a.*member < b.*member; });
  return (*middle).*member;
}

// Event mask that our plugin has set, so that the empty plugin sets the same.
uint64_t MaskInForce(const std::string& segment_directory) {
  const auto snapshot = collector::Collector({.directories = {segment_directory}}).Snapshot();
  for (const collector::ProcessSnapshot& process : snapshot->processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.is_overflow) return communicator.event_mask;
    }
  }
  return 0;
}

using Jobs = std::array<std::unique_ptr<PacedJob>, 3>;  // off, empty, ours

void MeasureSize(const OverheadOptions& options, size_t bytes, const Jobs& jobs) {
  Block block{.bytes = bytes, .operations = 10, .is_captured = options.graph};
  for (const auto& job : jobs) job->Run(block);
  const double once_ns = jobs[0]->Run(block).time_ns;
  block.operations =
      std::clamp<uint64_t>(static_cast<uint64_t>(kBlockNs / once_ns), 3, kMostOperations);
  std::array<std::vector<BlockCost>, 3> costs;
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (size_t turn = 0; turn < jobs.size(); ++turn) {
      const size_t job = (turn + static_cast<size_t>(repetition)) % jobs.size();
      costs[job].push_back(jobs[job]->Run(block));
    }
  }
  printf("| %zu |", bytes);
  for (double BlockCost::*member : {&BlockCost::time_ns, &BlockCost::call_ns, &BlockCost::cpu_ns}) {
    for (const auto& cost : costs) printf(" %.2f |", Median(cost, member) / 1e3);
  }
  printf(" %+.1f %% |\n",
         (Median(costs[2], &BlockCost::time_ns) / Median(costs[0], &BlockCost::time_ns) - 1) * 100);
  fflush(stdout);
}

int Measure(const OverheadOptions& options, const std::string& directory) {
  RankProcesses processes;
  Jobs jobs;
  const auto start = [&](size_t job, const std::map<std::string, std::string>& environment) {
    jobs[job] = std::make_unique<PacedJob>(
        &processes, options, directory + "/" + std::to_string(job) + ".id", environment);
    jobs[job]->Run({.bytes = 8, .operations = 1});  // has begun
  };
  start(0, {{"NCCL_PROFILER_PLUGIN", "none"}});
  start(2, {{"NCCL_PROFILER_PLUGIN", options.plugin}, {"NCCL_EXPORTER_DIR", directory}});
  const uint64_t mask = MaskInForce(directory);
  if (mask == 0)
    return fprintf(stderr, "NCCL has not loaded the plugin %s\n", options.plugin.c_str()), 1;
  start(1, {{"NCCL_PROFILER_PLUGIN", options.empty_plugin},
            {"EMPTY_PROFILER_MASK", std::to_string(mask)}});

  printf("%d ranks, %s, %s, event mask %llu; microseconds per operation, medians of %d blocks.\n\n",
         options.ranks, options.one_host ? "one host" : "as if on separate hosts",
         options.graph ? "replays of a captured graph" : "eager",
         static_cast<unsigned long long>(mask), options.repetitions);
  printf(
      "| bytes | time off | empty | ours | call off | empty | ours | CPU off | empty | ours | ours "
      "- off |\n");
  printf("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const size_t bytes : kSizes) {
    if (bytes <= options.largest_bytes) MeasureSize(options, bytes, jobs);
  }
  for (auto& job : jobs) job.reset();
  return processes.Wait(kLimitSeconds) ? 0 : 1;
}

// CUDA does not survive a fork: asked in a process of its own.
bool CanRun(const OverheadOptions& options) {
  RankProcesses probe;
  probe.Start({}, {}, [&options] {
    std::string reason;
    const int gpus = CountGpus(&reason);
    if (gpus == 0 || (options.one_host && gpus < options.ranks)) {
      printf("%s\n",
             gpus == 0 ? reason.c_str() : "fewer GPUs than ranks, which on one host need one each");
      return kCannotRun;
    }
    printf("%s. ", DescribeMachine(gpus).c_str());
    return 0;
  });
  return probe.Wait(kLimitSeconds);
}

}  // namespace
}  // namespace nccl_exporter

int main(int argc, char** argv) {
  using namespace nccl_exporter;
  OverheadOptions options;
  CLI::App app("What the profiler plugin costs an AllReduce, as a Markdown table.");
  app.add_option("--plugin", options.plugin, "path of our plugin")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--empty-plugin", options.empty_plugin, "path of the empty one")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--ranks", options.ranks, "processes, which take the GPUs in turn")
      ->check(CLI::Range(2, 64));
  app.add_option("--repetitions", options.repetitions, "blocks of each kind and size")
      ->check(CLI::Range(1, 1000));
  app.add_option("--largest-bytes", options.largest_bytes, "largest message")
      ->check(CLI::Range(size_t{1} << 20, size_t{1} << 32));
  app.add_flag("--one-host", options.one_host,
               "let NCCL know that the ranks share a host; each needs a GPU");
  app.add_flag("--graph", options.graph, "replay captured graphs");
  CLI11_PARSE(app, argc, argv);

  signal(SIGPIPE, SIG_IGN);
  if (!CanRun(options)) return kCannotRun;
  std::string directory = std::filesystem::temp_directory_path() / "nccl-overheadXXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return perror(directory.c_str()), 1;
  const int code = Measure(options, directory);
  std::filesystem::remove_all(directory);
  return code;
}
