// SPDX-License-Identifier: Apache-2.0
// TimingText(), what came of a request to keep timing on: `nccl-exporter timing`. A pure function,
// for any thread.
#pragma once

#include <map>
#include <string>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// A line for each communicator of the processes that were asked, or one for a process that did not
// take the request; in the order of `after`. `faults`: by process, why it has not; empty: it has.
// Operations are those of the time between the two snapshots. Ends in a line feed.
std::string TimingText(const collector::NodeSnapshot& before, const collector::NodeSnapshot& after,
                       const std::map<collector::FileKey, std::string>& faults);

}  // namespace nccl_exporter::exporter
