// SPDX-License-Identifier: Apache-2.0
// Findings of a single snapshot that need no comparison of ranks. Pure functions, for any thread.
#pragma once

#include <set>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"

namespace nccl_exporter::exporter {

// One finding per job with processes that ended without finalizing. A warning where a living
// process of the job waits, or went on for seconds without them; else information. Those in
// `just_ended` are not waited for: the processes of a job end one after the other.
std::vector<Finding> KilledProcesses(const collector::NodeSnapshot& node,
                                     const std::set<collector::FileKey>& just_ended = {});

// One finding per cause and owner of files that have the fault now (SegmentTrouble::present).
std::vector<Finding> UnusableSegments(const collector::NodeSnapshot& node);

}  // namespace nccl_exporter::exporter
