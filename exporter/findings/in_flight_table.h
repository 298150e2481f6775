// SPDX-License-Identifier: Apache-2.0
// Who is in what: `nccl-exporter inflight` and the page /debug/inflight. What to look at first when
// a job hangs.
#pragma once

#include <string>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// Plain text. First the findings of `judgement`, which is about `node`. Then one table a
// communicator: those of findings first, then those with the oldest operation in flight; finalized
// ones are left out. Says only what this node can know: which ranks are behind the max_started of
// those that are here, and which ranks are missing where all of them must be here. Ends in a line
// feed. Names of other processes are quoted and escaped. Ages are against the moment of the
// snapshot, not of the call. A pure function, for any thread.
std::string InFlightText(const collector::NodeSnapshot& node, const Judgement& judgement);

}  // namespace nccl_exporter::exporter
