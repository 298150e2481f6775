// SPDX-License-Identifier: Apache-2.0
// Numbers of ranks that several processes of a job have on one node. For any thread.
#pragma once

#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

// Takes these numbers away: the launcher has numbered something else than ranks, as tasks that
// start several processes each. Only living processes count, since a job that restarts has the same
// numbers again.
void DropSharedNumbers(NodeSnapshot& snapshot);

}  // namespace nccl_exporter::collector
