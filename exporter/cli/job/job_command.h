// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter job`: one job, from Prometheus. For the first thread.
#pragma once

#include <string>

#include "exporter/cli/job/job_list.h"
#include "exporter/cli/job/job_text.h"
#include "exporter/cli/job/prometheus.h"
#include "exporter/cli/job/prometheus_address.h"

namespace nccl_exporter::exporter {

// As given on the command line.
struct JobRequest {
  std::string prometheus{kDefaultPrometheus};  // a right address
  std::string http_config_file = {};           // empty: none
  WantedJob wanted = {};                       // nothing: the only one
  bool is_json = false;
};

// As wide as the window of standard output. 80 columns and no colours where that is no terminal.
JobView ViewOfOutput();

// What to print: the job, or the jobs if several match. Empty if there is none; then `fault` says
// why, in one line.
std::string AnswerAbout(const JobRequest& request, const AskPrometheus& ask, const JobView& view,
                        std::string& fault);
// The same, of the server that the request names.
std::string AnswerAbout(const JobRequest& request, const JobView& view, std::string& fault);

}  // namespace nccl_exporter::exporter
