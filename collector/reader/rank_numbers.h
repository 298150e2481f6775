// SPDX-License-Identifier: Apache-2.0
// Numbers of ranks in their job, from a segment. Pure functions, for any thread.
#pragma once

#include "collector/node_snapshot.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {

// The minor of the layout from which on a slot has the numbers of its communicator.
inline constexpr uint32_t kMinorOfRankNumbers = 7;

// Numbers in a slot of that minor. Numbers that contradict each other are none.
RankNumbers NumbersOf(const layout::CommunicatorSlot& slot);

// Numbers of all communicators of a process with an older minor: RANK, if it is a decimal number
// below WORLD_SIZE. Without RANK there is none, for such a segment does not say how many tasks
// Slurm's step has.
RankNumbers NumbersOf(const ProcessSnapshot& process);

}  // namespace nccl_exporter::collector
