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
  double lost_seconds = 0;
  // Their causes: "hang", a suspect as "cpu_wait", "slow network", "late rank", and "uneven
  // work", for which no alert fired.
  std::map<std::string, double> causes = {};
};

// The fleet first, then those that lost most. `by`: "team", which is the job's label or its Slurm
// account, "user" or "job". `wanted` has labels of the jobs. Throws std::runtime_error with one
// line if there is no job.
std::vector<CostRow> CostsOf(const AskSamples& ask, const std::string& by,
                             const SampleLabels& wanted, const TimeSpan& time);

// Each line ends in a line feed.
std::string CostsText(const std::vector<CostRow>& rows, size_t columns);
std::string CostsJson(const std::vector<CostRow>& rows);

}  // namespace nccl_exporter::exporter
