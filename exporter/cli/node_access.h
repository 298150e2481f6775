// SPDX-License-Identifier: Apache-2.0
// Segments, thresholds and name of this node, by the flags of the daemon. For the first thread.
#pragma once

#include <memory>
#include <string>

#include "collector/collector.h"
#include "exporter/cli/daemon_judgement.h"
#include "exporter/cli/options.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/ledger.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// A collector that changes nothing: no segment is old enough to be removed.
collector::Collector CollectorOf(const Options& options);

// Throws where the file of thresholds is wrong.
Thresholds ThresholdsOf(const Options& options);
LedgerTimes LedgerTimesOf(const Options& options, const Thresholds& thresholds);

std::shared_ptr<const Book> BookNow(collector::Collector& collector, Ledger& ledger);

// The name by which Kubernetes knows the node (NODE_NAME), else that of the machine.
std::string NodeName();

// The directories that exist and cannot be read; empty if there are none.
std::string UnreadableDirectories(const collector::NodeSnapshot& node);

// Prints the text, and returns the exit code: a failure unless all directories could be read, so
// that nothing there is never mistaken for nothing seen.
int PrintNode(const Options& options, const collector::NodeSnapshot& node, const std::string& text);

// The node as JSON for scripts: the fields of /api/v1/node (docs/api.md), and `judged`, which says
// whose findings they are. Ends in a line feed.
std::string NodeText(const Options& options, const collector::NodeSnapshot& node,
                     const NodeHistory& history, const ShownJudgement& shown);

}  // namespace nccl_exporter::exporter
