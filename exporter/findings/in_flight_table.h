// SPDX-License-Identifier: Apache-2.0
// InFlightText, findings, and the ranks and operations of each communicator: `nccl-exporter
// inflight` and the page /debug/inflight. Pure functions, for any thread.
#pragma once

#include <string>

#include "collector/node_snapshot.h"
#include "exporter/findings/node_judge.h"

namespace nccl_exporter::exporter {

// The findings of `judgement`, which is about `node`, then one table per communicator in use: those
// of findings first, then those with the oldest operation in flight. Missing ranks are named where
// all of them must be here. Names of other processes are quoted and escaped. Ages are at the moment
// of the snapshot. Ends in a line feed.
std::string InFlightText(const collector::NodeSnapshot& node, const Judgement& judgement);

// One line for the worst finding or for none, then its details and the further findings. Ends in a
// line feed.
std::string FindingsText(const Judgement& judgement);

// "Nothing found in the last 5 min: 12 communicators, 1204 operations compared."
std::string NothingFoundText(const Judgement& judgement);

}  // namespace nccl_exporter::exporter
