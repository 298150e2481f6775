// SPDX-License-Identifier: Apache-2.0
// Fills a report from the segments of one node, also of processes that were killed, and from the
// findings about it: without Prometheus. Pure, for any thread.
#pragma once

#include <string>

#include "collector/node_snapshot.h"
#include "exporter/cli/report/jobs.h"
#include "exporter/cli/report/report.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/thresholds.h"

namespace nccl_exporter::exporter {

// The report about the job, one of JobsOf(node). A segment has sums alone, so waits are those of
// the whole life of each communicator: of ranks that are late by turns they are the least that can
// have been, and they have no times.
Report ReportOfNode(const collector::NodeSnapshot& node, const Judgement& judgement, const Job& job,
                    const Thresholds& thresholds, const std::string& node_name);

}  // namespace nccl_exporter::exporter
