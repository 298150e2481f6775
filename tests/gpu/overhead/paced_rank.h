// SPDX-License-Identifier: Apache-2.0
// One rank of an overhead measurement: a process that runs blocks of AllReduce on request, and
// rests otherwise, so that jobs with different plugins can take turns on the same GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tests/gpu/rank_processes.h"

namespace nccl_exporter {

struct Block {
  uint64_t bytes = 0;        // of a message
  uint64_t operations = 0;   // 0: the end
  uint64_t is_captured = 0;  // 1: as replays of a captured graph of one AllReduce
};

// Cost of one operation, in nanoseconds.
struct BlockCost {
  double time_ns = 0;   // from the first call to the GPU's end
  double call_ns = 0;   // of the calling thread, CPU time in the calls
  double cpu_ns = 0;    // of the process, CPU time of all threads, the wait for the GPU included
  double clock_ns = 0;  // of a reading of the clock, by the calling thread after the calls
};

// The measuring process's end of it.
class PacedRank {
 public:
  // Starts the process among `processes`. `meeting_path` is where the ranks of one job find NCCL's
  // id.
  PacedRank(RankProcesses* processes, const RankPlacement& placement,
            std::map<std::string, std::string> environment, const std::string& meeting_path,
            size_t largest_bytes);
  ~PacedRank();  // asks the process to end
  PacedRank(const PacedRank&) = delete;
  PacedRank& operator=(const PacedRank&) = delete;

  // False if the process is gone. SIGPIPE must be ignored.
  bool Begin(const Block& block);
  bool End(BlockCost* cost);

 private:
  int commands_ = -1;
  int costs_ = -1;
};

}  // namespace nccl_exporter
