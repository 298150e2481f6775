// SPDX-License-Identifier: Apache-2.0
// Made-up snapshots: of a node of a given shape, and the parts that others are put together from.
#pragma once

#include <cstdint>
#include <memory>

#include "collector/node_snapshot.h"

namespace nccl_exporter {

struct NodeShape {
  int ranks = 8;
  int communicators = 12;  // of each rank
  int point_to_point = 4;  // of these, the ones that only send and receive
  int collectives = 4;     // that each of the others uses, at most kCollectivesOfShape
};

// All functions but Send, Recv and Other.
inline constexpr int kCollectivesOfShape = kFunctionCount - 3;

// A communicator with an identity, 8 ranks and kernel timing, that has done nothing yet.
CommunicatorSnapshot EmptyCommunicator(uint64_t id, uint64_t rank);

// One call and operation of `bytes`; timed where `duration_ns` is not 0.
void AddOperation(CommunicatorSnapshot& communicator, Function function, uint64_t bytes, uint64_t duration_ns);

// A live process without identity variables.
ProcessSnapshot EmptyProcess(uint64_t pid);

// A node in the middle of a Slurm job: every function used in all size classes, all of it timed and compared.
std::shared_ptr<const NodeSnapshot> NodeOfShape(const NodeShape& shape);

}  // namespace nccl_exporter
