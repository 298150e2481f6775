// SPDX-License-Identifier: Apache-2.0
// The answer of `nccl-exporter job`: a job, or the jobs to choose from, for a terminal and for
// programs. Texts of other processes come out as text that a terminal only shows. First thread.
#pragma once

#include <cstddef>
#include <string>

#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

// As given on the command line.
struct JobRequest {
  std::string prometheus{kDefaultPrometheus};  // a right address
  std::string http_config_file = {};           // empty: none
  SampleLabels wanted = {};                    // of kJobLabels; nothing: the only job
  bool is_json = false;
};

// The text to print: the job, or the jobs if several match, in so many columns (0: no limit). Empty
// if there is none; then `fault` says why, in one line.
std::string AnswerAbout(const JobRequest& request, const AskPrometheus& ask, size_t columns,
                        std::string& fault);
// The answer of the server that the request names.
std::string AnswerAbout(const JobRequest& request, size_t columns, std::string& fault);

}  // namespace nccl_exporter::exporter
