// SPDX-License-Identifier: Apache-2.0
// A job, or the jobs to choose from, for a terminal and for programs. Pure, for any thread. Texts
// of other processes come out as text that a terminal only shows.
//
// `warnings` say why the answers that this comes from may be incomplete: QueryAnswer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exporter/cli/job/job.h"
#include "exporter/cli/job/job_report.h"

namespace nccl_exporter::exporter {

using Warnings = std::vector<std::string>;

// "answer is incomplete: store-1: timeout; store-2: timeout". Empty without warnings.
std::string WarningText(const Warnings& warnings);

// `columns` of 0: no limit.
std::string JobScreen(const JobReport& report, const Warnings& warnings, size_t columns);
std::string JobsScreen(const std::vector<Job>& jobs, const Warnings& warnings, size_t columns);

std::string JobJson(const JobReport& report, const Warnings& warnings);
std::string JobsJson(const std::vector<Job>& jobs, const Warnings& warnings);

}  // namespace nccl_exporter::exporter
