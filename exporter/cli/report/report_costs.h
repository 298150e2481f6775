// SPDX-License-Identifier: Apache-2.0
// GPU time of a fleet that was lost by waiting, by cause, and by team, user or job. For any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "exporter/cli/report/jobs.h"
#include "exporter/cli/report/prometheus.h"

namespace nccl_exporter::exporter {

struct CostRow {
  std::string name;  // empty: not known
  double gpu_seconds = 0;
  bool knows_losses = false;  // not without GPU times
  double lost_seconds = 0;
  std::map<std::string, double> causes = {};  // as job:nccl_lost_gpu_seconds:rate has them
};

struct Costs {
  TimeSpan time;
  std::vector<CostRow> rows;  // the fleet first, then those that lost most
};

// `by`: "team", which is the job's label or its Slurm account, "user" or "job". `wanted` has labels
// of the jobs. Throws std::runtime_error with one line if there is no job, or no losses
// are known.
Costs CostsOf(const AskSamples& ask, const std::string& by, const SampleLabels& wanted,
              const TimeSpan& time);

// Each line ends in a line feed.
std::string CostsText(const Costs& costs, size_t columns);
std::string CostsJson(const Costs& costs);

}  // namespace nccl_exporter::exporter
