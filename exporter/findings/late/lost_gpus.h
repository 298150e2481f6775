// SPDX-License-Identifier: Apache-2.0
// GPUs that the ranks of a job on this node lose because they wait for each other: the definition
// of job:nccl_waiting_gpu_seconds:rate (docs/alerts.md, "Lost GPU time") over the ranks of one
// node. A pure function, for any thread.
#pragma once

#include <cstddef>
#include <map>

#include "exporter/findings/late/busy_rates.h"

namespace nccl_exporter::exporter {

struct LostGpus {
  double lost = 0;  // GPU seconds per second; ranks that wait for a victim are among them
  size_t gpus = 0;  // of the job on this node, with time in kernels
};

std::map<JobKey, LostGpus> LostGpusOf(const NodeRates& rates, const Thresholds& thresholds);

}  // namespace nccl_exporter::exporter
