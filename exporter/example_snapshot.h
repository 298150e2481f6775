// SPDX-License-Identifier: Apache-2.0
// Hand-made snapshots for tests and benchmarks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collector/node_snapshot.h"

namespace nccl_exporter {

// A communicator with an identity, 8 ranks and kernel timing, that has done nothing yet.
CommunicatorSnapshot EmptyCommunicator(uint64_t id, uint64_t rank);

// One call and operation of `bytes`; timed where `duration_ns` is not 0.
void AddOperation(CommunicatorSnapshot& communicator, Function function, uint64_t bytes, uint64_t duration_ns);

// A live process without identity variables.
ProcessSnapshot EmptyProcess(uint64_t pid);

// A node on which everything occurs that an exposition can show: see the golden files in testdata.
std::shared_ptr<const NodeSnapshot> ExampleSnapshot();

// A node with 8 ranks, each with `communicators` that use `functions` collectives, all of it timed.
std::shared_ptr<const NodeSnapshot> LoadedSnapshot(int communicators, int functions);

}  // namespace nccl_exporter
