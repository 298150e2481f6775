// SPDX-License-Identifier: Apache-2.0
// The node as JSON for scripts: `nccl-exporter top --json` and `nccl-exporter inflight --json`.
// Names of keys are those of /api/v1/node (docs/api.md). Pure functions, for any thread.
#pragma once

#include <string>

#include "collector/node_snapshot.h"
#include "exporter/cli/client/daemon_judgement.h"
#include "exporter/cli/top_ranks.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// One object: what was found, by whom, and the rows of the table in its order. Ends in a line feed.
// Times are seconds since the epoch, durations are seconds. A value that is not known is null.
std::string TopJson(const collector::NodeSnapshot& node, const NodeHistory& history,
                    const ShownJudgement& shown, TopSort sort);

// One object: what was found, by whom, and the ranks of each communicator with all that is in
// flight, the oldest first. Bytes are message bytes, as in nccl_collective_bytes_total.
std::string InFlightJson(const collector::NodeSnapshot& node, const ShownJudgement& shown);

}  // namespace nccl_exporter::exporter
