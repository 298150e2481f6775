// SPDX-License-Identifier: Apache-2.0
// InFlightText, the ranks and operations of each communicator: `nccl-exporter inflight` and the
// page /debug/inflight.
#pragma once

#include <string>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// The findings of `judgement`, which is about `node`, then one table per communicator in use: those
// of findings first, then those with the oldest operation in flight. Missing ranks are named where
// all of them must be here. Names of other processes are quoted and escaped. Ages are at the moment
// of the snapshot. Ends in a line feed. A pure function, for any thread.
std::string InFlightText(const collector::NodeSnapshot& node, const Judgement& judgement);

}  // namespace nccl_exporter::exporter
