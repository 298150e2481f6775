// SPDX-License-Identifier: Apache-2.0
// Fills a report from Prometheus: what its daemons have counted on all nodes, and what the rules
// have recorded. For any thread.
#pragma once

#include "exporter/cli/report/jobs.h"
#include "exporter/cli/report/report.h"

namespace nccl_exporter::exporter {

// The report about the job in this time, in which it need not have run all the time. Throws what
// `ask` throws.
Report ReportOfPrometheus(const AskSamples& ask, const Job& job, const TimeSpan& time);

}  // namespace nccl_exporter::exporter
