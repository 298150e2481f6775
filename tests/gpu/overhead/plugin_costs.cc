// SPDX-License-Identifier: Apache-2.0
// Cost of plugins for a job: the same AllReduce with each of them. The jobs live side by side and
// take turns block by block, so that a drift of the machine hits all.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/gpu/overhead/paced_rank.h"
#include "tests/gpu/programs.h"

namespace nccl_exporter {
namespace {

constexpr int kLimitSeconds = 60;  // for the processes to end
// A block's aim: long against the clock's and the scheduler's grain.
constexpr double kBlockNs = 30e6;
constexpr uint64_t kMostOperations = 400;  // of a block: fewer than the plugin follows at a time
// The call is timed by the smallest messages, also where ranks wait for time slices of one GPU.
constexpr uint64_t kLeastOfSmallest = 100, kLeastOperations = 3;
constexpr std::array<size_t, 9> kSizes{8,       1 << 10,  16 << 10,  128 << 10, 1 << 20,
                                       8 << 20, 32 << 20, 128 << 20, 256 << 20};

// One job with one plugin: its ranks run a block together.
class PacedJob {
 public:
  PacedJob(RankProcesses* processes, const nlohmann::json& options,
           const nlohmann::json& environment, const std::string& meeting_path) {
    const int ranks = options["ranks"];
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<PacedRank>(
          processes,
          RankPlacement{.rank = rank, .ranks = ranks, .separate_hosts = !options["one_host"]},
          environment, meeting_path, options["largest_bytes"]));
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
      sum.clock_ns += cost.clock_ns / static_cast<double>(ranks_.size());
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

struct Competitor {
  std::string name;
  std::unique_ptr<PacedJob> job;
};

// Prints what each block of this size has cost, in the order of the blocks.
void MeasureSize(const nlohmann::json& options, size_t bytes,
                 const std::vector<Competitor>& competitors) {
  Block block{.bytes = bytes, .operations = 10, .is_captured = options["graph"] ? 1U : 0U};
  for (const Competitor& competitor : competitors) competitor.job->Run(block);
  double once_ns = competitors[0].job->Run(block).time_ns;
  for (int i = 0; i < 2; ++i) once_ns = std::min(once_ns, competitors[0].job->Run(block).time_ns);
  const uint64_t least = bytes == kSizes[0] ? kLeastOfSmallest : kLeastOperations;
  block.operations =
      std::clamp<uint64_t>(static_cast<uint64_t>(kBlockNs / once_ns), least, kMostOperations);
  nlohmann::json costs;
  const size_t repetitions = options["repetitions"];
  for (size_t repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t turn = 0; turn < competitors.size(); ++turn) {
      const Competitor& competitor = competitors[(turn + repetition) % competitors.size()];
      const BlockCost cost = competitor.job->Run(block);
      nlohmann::json& own = costs[competitor.name];
      own["time_ns"].push_back(static_cast<uint64_t>(cost.time_ns));
      own["call_ns"].push_back(static_cast<uint64_t>(cost.call_ns));
      own["cpu_ns"].push_back(static_cast<uint64_t>(cost.cpu_ns));
      own["clock_ns"].push_back(cost.clock_ns);
    }
  }
  Print({{"bytes", bytes}, {"operations", block.operations}, {"costs", costs}});
}

}  // namespace

int RunCost(const nlohmann::json& options) {
  RankProcesses processes;
  std::vector<Competitor> competitors;
  for (const nlohmann::json& plugin : options["plugins"]) {
    const std::string name = plugin["name"];
    const std::string meeting_path = options["directory"].get<std::string>() + "/" + name + ".id";
    competitors.push_back({name, std::make_unique<PacedJob>(&processes, options,
                                                            plugin["environment"], meeting_path)});
    competitors.back().job->Run({.bytes = 8, .operations = 1});  // has begun
  }
  for (const size_t bytes : kSizes) {
    if (bytes <= options["largest_bytes"]) MeasureSize(options, bytes, competitors);
  }
  for (Competitor& competitor : competitors) competitor.job.reset();
  return processes.Wait(kLimitSeconds);
}

}  // namespace nccl_exporter
