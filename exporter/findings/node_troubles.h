// SPDX-License-Identifier: Apache-2.0
// Findings of a single snapshot that need no comparison of ranks. Pure functions, for any thread.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {

// One finding per job with processes that ended without finalizing. A warning where a living
// process of the job waits, or went on for seconds without them; else information. Those in
// `just_ended` are not waited for: the processes of a job end one after the other.
std::vector<Finding> KilledProcesses(const collector::NodeSnapshot& node,
                                     const std::set<collector::FileKey>& just_ended = {});

// One finding per cause and owner of files that have the fault now (SegmentTrouble::present).
std::vector<Finding> UnusableSegments(const collector::NodeSnapshot& node);

// One finding per job, about its communicators of several ranks in which a living rank has no GPU
// times, so that late ranks cannot be seen. Times by proxies begin in a queue, and show no late
// rank.
std::vector<Finding> NotJudged(const std::vector<CommunicatorOnNode>& communicators);
// Advice for a job whose operations have no GPU times for this reason (a name of
// proto/timing_source.h): one sentence.
std::string UntimedCure(std::string_view timing_reason);

// One finding per job across nodes with living processes that hold no device for verbs open, on a
// node that has one with a link: NCCL has fallen back to sockets, without an error.
std::vector<Finding> SocketFallbacks(const std::vector<CommunicatorOnNode>& communicators);

// Ranks that must be on this node and are not seen: without the plugin, or ended. One finding per
// job, about the communicator that lacks most ranks: of those that have all ranks on this node, and
// whose ranks have been there for `settled`. Users for whom the daemon or the plugin had no room
// are left out.
std::vector<Finding> UnmeasuredRanks(const collector::NodeSnapshot& node,
                                     std::chrono::nanoseconds settled);

}  // namespace nccl_exporter::exporter
