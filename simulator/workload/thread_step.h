// SPDX-License-Identifier: Apache-2.0
// One step of one calling thread with all its times, in nanoseconds since the job began: what a
// player plays.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/collective.h"
#include "simulator/workload/transfer.h"

namespace nccl_exporter::sim {

// Time at which and after which nothing happens: so far off that a job's times can be added to it.
inline constexpr int64_t kNever = INT64_MAX / 4;

// A call as one rank makes it. Transfers have become Send and Recv.
struct RankCall {
  int rank = 0;  // global
  int communicator = 0;
  Function function = Function::kAllReduce;
  uint64_t count = 0;
  std::string_view datatype;
  int root = 0;
  int peer = -1;  // rank in the communicator, of Send and Recv
  int64_t called_ns = 0;
};

// One kernel launch of one rank.
struct Plan {
  int rank = 0;  // global
  int communicator = 0;
  std::vector<RankCall> tasks;  // in NCCL's order, which is not that of the calls
  std::vector<size_t> calls;    // of the tasks: their places in ThreadGroup::calls
  int64_t launched_ns = 0;
  int64_t kernel_start_ns = 0;
  int64_t kernel_stop_ns = 0;
  std::shared_ptr<const LaunchTransfer> transfer = nullptr;  // shared by the ranks of the launch
};

struct ThreadGroup {
  int id = 0;
  bool is_explicit = false;  // between ncclGroupStart and ncclGroupEnd
  bool is_capturable = true;
  std::vector<RankCall> calls;
  std::vector<Plan> plans;
  int64_t ended_ns = 0;  // end of the group's last call
};

struct ThreadStep {
  int64_t step = 0;
  int64_t started_ns = 0;  // kNever: the thread hangs in the step before
  std::vector<ThreadGroup> groups = {};
  int64_t killed_ns = kNever;   // the process dies then
  int64_t stopped_ns = kNever;  // or is stopped, and not continued
};

}  // namespace nccl_exporter::sim
