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
  bool is_late = false;          // it waits less than chance explains, or than its peers
  bool is_culprit = false;       // and is no victim of another late rank
  bool is_straggler = false;     // and is one of few
  bool is_last_arriver = false;  // by the starts of kernels
  double cost = 0;               // share of the time that the others lose, 0 to 1
  double wait_deficit = 0;       // of a culprit: it waits so much less than the median
  uint64_t compared = 0;         // operations; 0: none was compared
  double last_share = 0;         // of these, the ones that it entered last
  double mean_lateness_seconds = 0;
};

struct LateCandidate {
  collector::CommunicatorKey communicator;
  uint64_t rank = 0;
  collector::FileKey process = {};
  int gpu = -1;  // of those of the process
  LateMeasures measures;
};

struct LateJudgement {
  // Ranks that are late or arrive last, victims included. Each at most once per communicator, in
  // the order of the rates.
  std::vector<LateCandidate> candidates;
  // Communicators in which a rank waits less than the median by Thresholds::straggler_threshold,
  // whether chance explains it or not: comm:nccl_wait_deficit:uneven.
  std::vector<collector::CommunicatorKey> uneven;
};

LateJudgement JudgeLateRanks(const NodeRates& rates, const Thresholds& thresholds);

}  // namespace nccl_exporter::exporter
