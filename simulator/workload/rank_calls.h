// SPDX-License-Identifier: Apache-2.0
// From the program's calls to those of one thread, and on to NCCL's plans: which rank calls what,
// and what shares a launch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/workload/group.h"
#include "simulator/workload/thread_step.h"
#include "simulator/workload/workload.h"

namespace nccl_exporter::sim {

uint64_t ElementBytes(std::string_view datatype);

// Bytes of a call's message by the definition of nccl-tests; `ranks` 0 where NCCL does not report
// it.
uint64_t MessageBytesOf(const RankCall& call, int ranks);

// The calls that the ranks [first_rank, last_rank) make in a group. NCCL announces nothing for
// collectives without data or on a single rank, so these are left out.
std::vector<RankCall> CallsOf(const Group& group, const std::vector<Communicator>& communicators,
                              int first_rank, int last_rank);

// The launches of a group: by rank and communicator, collectives before point-to-point, collectives
// of a kind by size.
std::vector<Plan> PlansOf(const std::vector<RankCall>& calls,
                          const std::vector<Communicator>& communicators);

}  // namespace nccl_exporter::sim
