// SPDX-License-Identifier: Apache-2.0
// Cost and evidence of a hang, in numbers. Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

// "fsdp", or "communicator 0a1b2c3d" where the user gave no name.
std::string NameOf(const GraphCommunicator& communicator);
// Whether all ranks of the job have global ranks: then these number them all.
bool HasGlobalRanks(const GraphJob& job);
// Names in a list; the others are counted.
inline constexpr size_t kMostNamed = 8;
// "1, 2, 3 and 4 more", where `more` are not among `names`.
std::string ListText(const std::vector<std::string>& names, size_t more = 0);

// GPUs of the job on this node that wait, each once, however many communicators it waits in.
std::string CostText(const GraphJob& job);

// Adds name and value of each number, the age first. `oldest` is the rank of `communicator` that
// has waited longest. Lists are cut off.
void AddEvidence(const GraphJob& job, const GraphCommunicator& communicator,
                 const GraphRank& oldest, int64_t taken_realtime_ns, Finding& finding);

}  // namespace nccl_exporter::exporter
