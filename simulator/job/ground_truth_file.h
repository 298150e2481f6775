// SPDX-License-Identifier: Apache-2.0
// Ground truth of a job as JSON: what a test or a demo compares the plugin's counts with.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulator/nccl/live_communicator.h"
#include "simulator/release/play_options.h"
#include "simulator/truth/ground_truth.h"

namespace nccl_exporter::sim {

nlohmann::json TruthOf(const LiveCommunicator& communicator, const GroundTruth& counted,
                       const PlayOptions& options);

// One rank; its communicators are appended.
nlohmann::json TruthOfRank(int rank, int local_rank, int node, int64_t pid, bool is_killed,
                           const std::string& gpu_uuid);

// Replaces a regular file as a whole. Anything else at that path, such as a device, a pipe or a
// link, is written to where it is: a device must not become a file. False, with errno set, if it
// cannot be written.
bool WriteJson(const std::string& path, const nlohmann::json& document);

// Lines for people: operations, bytes and timing source of every rank.
std::string SummaryOf(const nlohmann::json& truth);

}  // namespace nccl_exporter::sim
