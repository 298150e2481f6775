// SPDX-License-Identifier: Apache-2.0
// The programs of the kit. Each takes its options as a JSON object, prints JSON, and returns an
// exit code: 77 where it cannot run, with the reason as text.
#pragma once

#include <nlohmann/json.hpp>

namespace nccl_exporter {

// Prints an object on a line of its own, in one piece: ranks and NCCL write to the same output.
void Print(const nlohmann::json& object);

// `facts`: what this machine has, or why there is no GPU to use.
int RunFacts(const nlohmann::json& options);

// `job`: the job with a ground truth, which each rank leaves in `directory`/truth.RANK.
int RunNcclJob(const nlohmann::json& options);

// `loop`: one AllReduce after the other. A rank may miss one, or be killed.
int RunLoop(const nlohmann::json& options);

// `cost`: an AllReduce with each of several plugins, in alternating blocks.
int RunCost(const nlohmann::json& options);

// `overlap`: a matrix product beside an AllReduce or a copy.
int RunOverlap(const nlohmann::json& options);

}  // namespace nccl_exporter
