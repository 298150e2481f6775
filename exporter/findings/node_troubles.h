// SPDX-License-Identifier: Apache-2.0
// Findings of a single snapshot that need no comparison of ranks: processes that ended without
// finalizing, and files that cannot be used. Pure functions, for any thread.
#pragma once

#include <set>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"

namespace nccl_exporter::exporter {

// One per job with such processes. A warning where a living process of the job waits, or went on
// for seconds without them; else information, as at the end of a job or after a restart. Nobody
// waits for those that have just ended: the processes of a job end one after the other.
std::vector<Finding> KilledProcesses(const collector::NodeSnapshot& node,
                                     const std::set<collector::FileKey>& just_ended = {});

// One per cause and owner of files that have the fault now (SegmentTrouble::present).
std::vector<Finding> UnusableSegments(const collector::NodeSnapshot& node);

}  // namespace nccl_exporter::exporter
