// SPDX-License-Identifier: Apache-2.0
// The answer of `nccl-exporter job`: a job, or the jobs to choose from, for a terminal and for
// programs. Texts of other processes come out as text that a terminal only shows. First thread.
#pragma once

#include <cstddef>
#include <string>

#include "exporter/cli/client/http_address.h"
#include "exporter/cli/job/prometheus.h"

namespace nccl_exporter::exporter {

// As given on the command line.
struct JobRequest {
  HttpAddress prometheus{.host = "localhost", .port = "9090"};
  std::string http_config_file = {};  // empty: none
  SampleLabels wanted = {};           // of kJobLabels; nothing: the only job
  bool is_json = false;
};

// The text to print: the job, or the jobs if several match, in so many columns (0: no limit).
// Throws std::runtime_error with one line if there is none.
std::string AnswerAbout(const JobRequest& request, const AskPrometheus& ask, size_t columns);

}  // namespace nccl_exporter::exporter
