// SPDX-License-Identifier: Apache-2.0
// Transfer and waiting apart, for the page: the rank that is in collectives for the shortest time
// waits for nobody, so its time is the transfer, and what the others need beyond it is waiting.
// Pure functions, for any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {

// Means of one operation, in seconds. NaN where fewer than two ranks of this node were timed.
struct MeanTimes {
  double transfer = 0;
  double waiting = 0;  // of the ranks of this node, on average
};
MeanTimes MeanTimesOf(const CommunicatorOnNode& communicator, Function function,
                      const RanksWindow& recent);

// Null for a communicator with one rank on this node. Else its ranks, and for each of them the
// seconds of waiting per second at each step of the history; null where nothing was timed.
nlohmann::ordered_json WaitingJson(const CommunicatorOnNode& communicator,
                                   const NodeHistory& history);

}  // namespace nccl_exporter::exporter
