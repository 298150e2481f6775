// SPDX-License-Identifier: Apache-2.0
// Compares what the daemon exports with the simulator's ground truth, number by number.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/system/exposition.h"

namespace nccl_exporter {

nlohmann::json ReadTruth(const std::string& path);

// Every count, byte and classic bucket of every rank and communicator, exactly; sums to rounding;
// and nothing that the ground truth does not know.
void ExpectEqualsTruth(const Exposition& scrape, const nlohmann::json& truth);

// Every native bucket as well, read from the segments by the collector.
void ExpectSegmentsEqualTruth(const std::string& segment_directory, const nlohmann::json& truth);

// Operations of all ranks, by the ground truth; to see that a workload did something.
uint64_t TotalOperations(const nlohmann::json& truth);

}  // namespace nccl_exporter
