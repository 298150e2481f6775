// SPDX-License-Identifier: Apache-2.0
// The findings about a job that waits, in sentences. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/findings/finding.h"
#include "exporter/findings/hangs/wait_graph.h"

namespace nccl_exporter::exporter {

// A finding about `communicator` of `job`, in which a living rank waits. `is_hang`: it has waited
// for as long as a hang. `kind` says which ranks are named:
// - kHangCulprit: those with is_culprit, at least one.
// - kHangOtherCall: those with is_different. If there are none, no call has a majority.
// - kHangNobodyBehind, kHangElsewhere: none.
Finding HangFinding(FindingKind kind, const GraphJob& job, const GraphCommunicator& communicator,
                    int64_t taken_realtime_ns, bool is_hang, Severity severity);

// About the abandoned communicator that has stood still longest, and for at least the threshold of
// a hang; nothing if there is none. Ranks that go on after a pause do so in one communicator before
// the other. So one that `memory` follows must have been abandoned for a quarter of the threshold.
std::optional<Finding> AbandonedFinding(const GraphJob& job, const HangMemory& memory,
                                        int64_t taken_realtime_ns, const Thresholds& times);

// "fsdp", or "communicator 0a1b2c3d" where the user gave no name.
std::string NameOf(const GraphCommunicator& communicator);
// Whether a name is one word to any shell, and no option. A job chooses the names in its
// environment.
bool IsPlain(std::string_view name);
// Whether all ranks of the job have global ranks: then these number them all.
bool HasGlobalRanks(const GraphJob& job);

// Adds the cost, and name and value of each number, the age first. `oldest` is the rank of
// `communicator` that has waited longest. Lists are cut off.
void AddEvidence(const GraphJob& job, const GraphCommunicator& communicator,
                 const GraphRank& oldest, int64_t taken_realtime_ns, Finding& finding);

// Adds what to save before the job is killed: stacks and flight recorders of the first culprit that
// lives and of the first rank that waits, NCCL's own view of the job, and the kernel's log.
void AddCollect(const GraphCommunicator& communicator, Finding& finding);

}  // namespace nccl_exporter::exporter
