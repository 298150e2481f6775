// SPDX-License-Identifier: Apache-2.0
// Ranks that must be on this node and are not seen: without the plugin, or ended. A pure function,
// for any thread.
#pragma once

#include <chrono>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {

// One finding per job, about the communicator that lacks most ranks: of those that have all ranks
// on this node, and whose ranks have been there for `settled`. Users for whom the daemon or the
// plugin had no room are left out.
std::vector<Finding> UnmeasuredRanks(const collector::NodeSnapshot& node,
                                     const std::vector<CommunicatorOnNode>& communicators,
                                     std::chrono::nanoseconds settled);

}  // namespace nccl_exporter::exporter
