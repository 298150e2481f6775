// SPDX-License-Identifier: Apache-2.0
// Cost and evidence of a hang, in numbers. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

// "fsdp", or "communicator 0a1b2c3d" where the user gave no name.
std::string NameOf(const GraphCommunicator& communicator);
// "1, 2, 3"; cut off where it gets long.
std::string ListText(const std::vector<std::string>& names);

// GPUs of the job on this node that wait.
std::string CostText(const GraphJob& job);

// `oldest` is the rank of `communicator` that has waited longest.
void AddEvidence(const GraphJob& job, const GraphCommunicator& communicator,
                 const GraphRank& oldest, int64_t taken_realtime_ns, Finding& finding);

}  // namespace nccl_exporter::exporter
