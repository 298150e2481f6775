// SPDX-License-Identifier: Apache-2.0
// Findings that need no comparison of ranks: processes that ended without finalizing, files that
// cannot be used, and operations that are not followed.
#pragma once

#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/judgement_times.h"
#include "exporter/node/node_history.h"

namespace nccl_exporter::exporter {

std::vector<Finding> KilledProcesses(const collector::NodeSnapshot& node);
std::vector<Finding> UnusableSegments(const collector::NodeSnapshot& node);
std::vector<Finding> UnfollowedOperations(const collector::NodeSnapshot& node,
                                          const NodeHistory& history, const JudgementTimes& times);

}  // namespace nccl_exporter::exporter
