// SPDX-License-Identifier: Apache-2.0
// Calls of a job, as its program is written: communicators, calls, and groups of calls, for all
// ranks alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/collective.h"

namespace nccl_exporter::sim {

struct Communicator {
  std::string name;
  std::vector<int> members;  // global ranks, ascending; the place is the rank in the communicator
  int nodes = 1;             // that they are on
  int64_t first_step = 0;    // in which it is created
  // Its operations of that step do not end, from some group on; -1: none (elastic.h).
  int64_t aborted_step = -1;

  int ranks() const { return static_cast<int>(members.size()); }
  // Rank of a global rank in this communicator; -1 if it is not a member.
  int RankOf(int global_rank) const {
    const auto member = std::lower_bound(members.begin(), members.end(), global_rank);
    return member == members.end() || *member != global_rank
               ? -1
               : static_cast<int>(member - members.begin());
  }
};

// One call as the program makes it on every member. kSend is a transfer: a send on one member, a
// receive on another. kAlltoAll is what ncclAlltoAll becomes: a send to and a receive from every
// member, itself included.
struct Call {
  int communicator = 0;
  Function function = Function::kAllReduce;
  uint64_t count = 0;  // as the user passes it
  std::string_view datatype = "ncclFloat32";
  int root = 0;         // of Broadcast and Reduce; the sender of a transfer
  int destination = 0;  // the receiver of a transfer
};

// Calls between one ncclGroupStart and ncclGroupEnd; a single call of a thread stands for itself,
// without a group.
struct Group {
  int id = 0;  // number of a captured group, which is equal in every step
  std::vector<Call> calls = {};
  bool overlaps_compute = false;  // the GPU computes on while these run
  bool is_capturable = true;      // it is equal in every step, so that a CUDA graph can hold it
  int64_t only_step = -1;         // called in this step and in no other; -1: in all
};

}  // namespace nccl_exporter::sim
