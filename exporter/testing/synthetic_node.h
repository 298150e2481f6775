// SPDX-License-Identifier: Apache-2.0
// NodeOfShape(), the snapshot of a synthetic node for the tool `cardinality` and tests, and its
// parts. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"

namespace nccl_exporter::exporter {

// The flags of `cardinality`, which limit each number. Larger ones only cost time and
// memory: 16 KiB for each communicator of a rank.
struct NodeShape {
  int ranks = 8;
  int communicators = 12;  // per rank
  int point_to_point = 4;  // of these, the ones that only send and receive
  int collectives = 4;     // used by each of the others, at most kCollectivesOfShape
};

// All functions but Send, Recv and Other.
inline constexpr int kCollectivesOfShape = kFunctionCount - 3;

// A communicator with an identity, 8 ranks, kernel timing and no operation.
collector::CommunicatorSnapshot EmptyCommunicator(uint64_t id, uint64_t rank);

// Adds a call and operation of `bytes`, so many times, timed if `duration_ns` is not 0. Counts what
// the plugin would count for a launch of this operation alone (rules 5 to 8 of proto/README.md),
// with the ranks that the communicator has by now. Does not touch sequences, times of progress and
// arrivals.
void AddOperation(collector::CommunicatorSnapshot& communicator, Function function, uint64_t bytes,
                  uint64_t duration_ns, uint64_t times = 1);

// A book that a daemon might have after a while, from the totals of this one snapshot, to count
// series. All collectives and sizes count as regular.
std::shared_ptr<const Book> AssumedBook(std::shared_ptr<const collector::NodeSnapshot> node);

// A live process without identity variables. The PID is its file as well: processes with the same
// one are the same segment.
collector::ProcessSnapshot EmptyProcess(uint64_t pid);

// A node during a Slurm job. Every function is used in all size classes, timed and compared. Counts
// are as long as those of a job that runs for hours, so bodies have a real size. The same shape
// gives the same snapshot.
std::shared_ptr<const collector::NodeSnapshot> NodeOfShape(const NodeShape& shape);

}  // namespace nccl_exporter::exporter
