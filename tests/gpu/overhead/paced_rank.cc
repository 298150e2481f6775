// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/overhead/paced_rank.h"

#include <time.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"
#include "tests/gpu/id_file.h"
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/require.h"

namespace nccl_exporter {
namespace {

constexpr int kReadings = 1000;

double ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// In the rank's process.
class BlockRunner {
 public:
  BlockRunner(const RankPlacement& placement, const std::string& meeting_path, size_t largest_bytes)
      : gpu_(placement.rank, largest_bytes) {
    const ncclUniqueId id = MeetBy(meeting_path, placement.rank);
    Require(ncclCommInitRank(&communicator_, placement.ranks, id, placement.rank),
            "ncclCommInitRank");
  }
  ~BlockRunner() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    gpu_.Synchronize();
    ncclCommDestroy(communicator_);
  }

  BlockCost Run(const Block& block) {
    if (block.is_captured != 0) Capture(block.bytes);
    const double time = ReadClock(CLOCK_MONOTONIC), call = ReadClock(CLOCK_THREAD_CPUTIME_ID),
                 cpu = ReadClock(CLOCK_PROCESS_CPUTIME_ID);
    for (uint64_t i = 0; i < block.operations; ++i) {
      if (block.is_captured != 0) {
        Require(cudaGraphLaunch(graph_, gpu_.stream()), "cudaGraphLaunch");
      } else {
        AllReduce(block.bytes);
      }
    }
    const double call_end = ReadClock(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < kReadings; ++i) ReadClock(CLOCK_MONOTONIC);
    const double readings_end = ReadClock(CLOCK_THREAD_CPUTIME_ID);
    gpu_.Synchronize();
    const double operations = static_cast<double>(block.operations);
    return {.time_ns = (ReadClock(CLOCK_MONOTONIC) - time) / operations,
            .call_ns = (call_end - call) / operations,
            .cpu_ns = (ReadClock(CLOCK_PROCESS_CPUTIME_ID) - cpu) / operations,
            .clock_ns = (readings_end - call_end) / kReadings};
  }

 private:
  void AllReduce(size_t bytes) {
    Require(ncclAllReduce(gpu_.send(), gpu_.receive(), bytes / sizeof(float), ncclFloat32, ncclSum,
                          communicator_, gpu_.stream()),
            "ncclAllReduce");
  }

  void Capture(size_t bytes) {
    if (bytes == captured_bytes_) return;
    cudaGraph_t graph = nullptr;
    if (graph_ != nullptr) Require(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy");
    Require(cudaStreamBeginCapture(gpu_.stream(), cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
    AllReduce(bytes);
    Require(cudaStreamEndCapture(gpu_.stream(), &graph), "cudaStreamEndCapture");
    Require(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    Require(cudaGraphDestroy(graph), "cudaGraphDestroy");
    captured_bytes_ = bytes;
  }

  Gpu gpu_;
  ncclComm_t communicator_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  size_t captured_bytes_ = 0;
};

int RunBlocks(int commands, int costs, const RankPlacement& placement,
              const std::string& meeting_path, size_t largest_bytes) {
  NameRequirements(placement.rank);
  BlockRunner runner(placement, meeting_path, largest_bytes);
  Block block;
  while (read(commands, &block, sizeof(block)) == sizeof(block) && block.operations != 0) {
    const BlockCost cost = runner.Run(block);
    if (write(costs, &cost, sizeof(cost)) != sizeof(cost)) return 1;
  }
  return 0;
}

}  // namespace

PacedRank::PacedRank(RankProcesses* processes, const RankPlacement& placement,
                     std::map<std::string, std::string> environment,
                     const std::string& meeting_path, size_t largest_bytes) {
  int commands[2], costs[2];
  Require(pipe(commands) == 0 && pipe(costs) == 0, "pipe");
  processes->Start(placement, environment, [&] {
    close(commands[1]);
    close(costs[0]);
    return RunBlocks(commands[0], costs[1], placement, meeting_path, largest_bytes);
  });
  close(commands[0]);
  close(costs[1]);
  commands_ = commands[1];
  costs_ = costs[0];
}

// By a command: ranks that were forked later hold copies of the pipe, so that closing it is not
// enough.
PacedRank::~PacedRank() {
  Begin({.bytes = 0, .operations = 0});
  close(commands_);
  close(costs_);
}

bool PacedRank::Begin(const Block& block) {
  return write(commands_, &block, sizeof(block)) == sizeof(block);
}

bool PacedRank::End(BlockCost* cost) { return read(costs_, cost, sizeof(*cost)) == sizeof(*cost); }

}  // namespace nccl_exporter
