// SPDX-License-Identifier: Apache-2.0
// One judgement of late ranks: the conditions of NCCLStragglerRank and of NCCLLastArriver for the
// ranks of this node, and what the waits cost. docs/alerts.md has the reason for each. Pure
// functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "exporter/findings/late/busy_rates.h"

namespace nccl_exporter::exporter {

// Why a rank is taken for late, in numbers.
struct LateMeasures {
  bool is_late = false;          // it waits less than chance explains, or than its peers
  bool is_culprit = false;       // and is no victim of another late rank
  bool is_straggler = false;     // and is one of few
  bool is_last_arriver = false;  // by the durations of kernels
  double cost = 0;               // share of the time that the others lose, 0 to 1
  collector::ArrivalCounts arrivals = {};
};

struct LateCandidate {
  collector::CommunicatorKey communicator;
  uint64_t rank = 0;
  GpuOfProcess gpu;
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

// GPUs that the ranks of a job on this node lose because they wait for each other: the definition
// of job:nccl_waiting_gpu_seconds:rate (docs/alerts.md, "Lost GPU time").
struct LostGpus {
  double lost = 0;  // GPU seconds per second; ranks that wait for a victim are among them
  size_t gpus = 0;  // of the job on this node, with time in kernels
  std::map<RankKey, double> by_rank = {};  // of `lost` and more, by the rank that is waited for
};

std::map<JobKey, LostGpus> LostGpusOf(const NodeRates& rates, const Thresholds& thresholds);

// Loss of a job in its life, and its steps: of the communicator across nodes with the fewest,
// 0 if there is none.
struct LostInLife {
  LostGpus gpus = {};
  double steps = 0;
};

// From segments alone, which have sums since their begin. `node` has the processes of one job,
// those that have ended included; times are nanoseconds since the epoch, `from` before `to`.
LostInLife LostInLifeOf(const collector::NodeSnapshot& node, int64_t from, int64_t to,
                        const Thresholds& thresholds);

}  // namespace nccl_exporter::exporter
