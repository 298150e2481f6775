// SPDX-License-Identifier: Apache-2.0
// Findings about late ranks, in sentences. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/late/late_candidates.h"
#include "exporter/findings/late/lost_gpus.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

// A rank that was found late, with the measures of the latest judgement that found it late.
struct LateRank {
  collector::CommunicatorKey communicator;
  uint64_t rank = 0;
  LateMeasures measures;
  int64_t since_realtime_ns = 0;  // its first judgement of the run
  int late_judgements = 0;        // of the latest `judgements`
  int judgements = 0;
  Thresholds::Ns window{};  // of the rates that the measures come from
  LostGpus lost = {};       // of the whole job on this node, by all waits
};

// One finding per GPU of a process: of the communicator in which it costs most. Ranks that are not
// on `node` any more, or whose process has ended, are left out.
std::vector<Finding> LateFindings(const collector::NodeSnapshot& node,
                                  const std::vector<LateRank>& late);

}  // namespace nccl_exporter::exporter
