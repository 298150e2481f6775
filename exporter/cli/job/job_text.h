// SPDX-License-Identifier: Apache-2.0
// A job, or the jobs to choose from, for a terminal and for programs. Pure, for any thread. Texts
// of other processes come out as text that a terminal only shows.
//
// `warnings` say why the answers that this comes from may be incomplete: QueryAnswer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exporter/cli/job/job_list.h"
#include "exporter/cli/job/job_state.h"

namespace nccl_exporter::exporter {

struct JobView {
  size_t columns = 80;  // 0: no limit
  bool has_colours = false;
};

using Warnings = std::vector<std::string>;

// "answer is incomplete: store-1: timeout; store-2: timeout". Empty without warnings.
std::string WarningText(const Warnings& warnings);

std::string JobScreen(const JobState& state, const Warnings& warnings, const JobView& view);
std::string JobJson(const JobState& state, const Warnings& warnings);

std::string JobsScreen(const std::vector<Job>& jobs, const Warnings& warnings, const JobView& view);
std::string JobsJson(const std::vector<Job>& jobs, const Warnings& warnings);

}  // namespace nccl_exporter::exporter
