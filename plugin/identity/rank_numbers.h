// SPDX-License-Identifier: Apache-2.0
// The numbers that a launcher gives to the ranks of a job (torchrun, Slurm). At the init of each
// communicator, since elastic frameworks number the ranks of a process again.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin {

// -1, or 0 for the size: not proven.
struct RankNumbers {
  int32_t global_rank = -1;
  int32_t local_rank = -1;
  int32_t world_size = 0;
};

// A number is proven if it is a plain decimal number below the size that the launcher gives beside
// it: RANK with WORLD_SIZE; without RANK, SLURM_PROCID with SLURM_STEP_NUM_TASKS. A rank on the
// node needs a global rank, and LOCAL_RANK or SLURM_LOCALID.
RankNumbers FindRankNumbers(const char* (*get)(const char* name));

// Whether the launcher has started fewer processes than a communicator has ranks, on all nodes or
// on one: a process then has several ranks, or the launcher does not know of all processes, and
// RANK, or without it SLURM_PROCID, numbers no ranks. False where that is not known: `ranks` or
// `nodes` 0, a launcher that does not say.
bool HasMoreRanksThanProcesses(const char* (*get)(const char* name), int ranks, int nodes);

}  // namespace nccl_exporter::plugin
