// SPDX-License-Identifier: Apache-2.0
// Compares what a job on the real NCCL did, by its ground truth, with what the plugin counted and
// timed.
#pragma once

#include <nlohmann/json.hpp>

#include "collector/node_snapshot.h"
#include "tests/system/exposition.h"

namespace nccl_exporter {

// Writes into the ground truth the ids under which the plugin knows the communicators. NCCL gives
// the program none, so that they are found by process and name, or by the order of their creation
// where NCCL hands no names on. Fails the test unless every communicator is found, in its rank,
// with one id on all ranks that no other has.
void FillInIds(const collector::NodeSnapshot& snapshot, nlohmann::json* truth);

// Every communicator reports NCCL's release, the API that it prefers, and the timing source that
// follows from it.
void ExpectReleaseKnown(const collector::NodeSnapshot& snapshot, bool kernel_timing);

// Calls, operations and bytes of the scrape, exactly; and no count on a communicator that the
// ground truth does not know.
void ExpectCountsEqual(const Exposition& scrape, const nlohmann::json& truth);

// Durations cannot be known: no more operations timed than counted, none of the histograms' counts
// lost, nearly everything timed, and the median of the operations that the job timed with CUDA
// events near theirs.
void ExpectDurationsPlausible(const collector::NodeSnapshot& snapshot, const nlohmann::json& truth);

// Operations, how many of them timed, and what was lost, by reason: a line for people.
std::string SummaryOf(const collector::NodeSnapshot& snapshot);

}  // namespace nccl_exporter
