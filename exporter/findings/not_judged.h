// SPDX-License-Identifier: Apache-2.0
// Findings about jobs whose late ranks cannot be seen, because their operations have no GPU times.
// Pure functions, for any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exporter/findings/finding.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {

// Advice for a job whose operations have no GPU times for this reason (a name of
// proto/timing_source.h): one sentence.
std::string UntimedCure(std::string_view timing_reason);

// One finding per job, about its communicators of several ranks in which a living rank has no GPU
// times. Times by proxies begin in a queue, so that they show no late rank.
std::vector<Finding> NotJudged(const std::vector<CommunicatorOnNode>& communicators);

}  // namespace nccl_exporter::exporter
