// SPDX-License-Identifier: Apache-2.0
// The ranks that one judgement takes for late: the conditions of NCCLStragglerRank and of
// NCCLLastArriver for the ranks of this node. docs/alerts.md has the reason for each. Pure
// functions, for any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "exporter/findings/late/busy_rates.h"

namespace nccl_exporter::exporter {

// Why a rank is taken for late, in numbers.
struct LateMeasures {
  bool is_straggler = false;     // by the times in kernels
  bool is_last_arriver = false;  // by the starts of kernels
  double cost = 0;               // share of the time that the others lose, 0 to 1
  double wait_deficit = 0;       // of a straggler: it waits so much less than the median
  uint64_t compared = 0;         // operations; 0: none was compared
  double last_share = 0;         // of these, the ones that it entered last
  double mean_lateness_seconds = 0;
  bool is_alone = false;          // no other rank of the communicator is late
  uint64_t timed_operations = 0;  // in the window of the rates
};

struct LateCandidate {
  collector::CommunicatorKey communicator;
  uint64_t rank = 0;
  LateMeasures measures;
};

struct LateJudgement {
  // Each rank at most once per communicator, in the order of the rates. A candidate of one
  // judgement is no finding yet: LateRanks wants several.
  std::vector<LateCandidate> candidates;
  // Communicators in which a rank waits less than the median by Thresholds::straggler_threshold, whether
  // chance explains it or not: comm:nccl_busy_seconds:uneven.
  std::vector<collector::CommunicatorKey> uneven;
};

LateJudgement JudgeLateRanks(const NodeRates& rates, const Thresholds& thresholds);

}  // namespace nccl_exporter::exporter
