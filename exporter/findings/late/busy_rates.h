// SPDX-License-Identifier: Apache-2.0
// Rates of the ranks of this node over the newest window, as the recording rules of group
// nccl_stragglers have them (deploy/prometheus). Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/book.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"

namespace nccl_exporter::exporter {

// One GPU of one process, in all its communicators.
struct ProcessRates {
  double busy = 0;            // seconds in operations per second
  double p2p_operations = 0;  // per second
  std::optional<double> p2p_busy;
};

// One rank in one communicator.
struct RankRates {
  RankOnNode rank;     // into the snapshot
  size_t process = 0;  // in NodeRates::processes
  // Seconds in timed operations per second; nothing where none was timed. Of those, sends and
  // receives.
  std::optional<double> busy = {};
  std::optional<double> p2p_busy = {};
  double expected_busy = 0;  // usual time (usual_times.h) at as many sends as there are now
  // comm_rank_kind:nccl_step_wait_seconds:rate.
  std::map<OperationKind, double> step_waits = {};
  double p2p_operations = 0;     // per second
  double timed_collectives = 0;  // per second
  double steps = 0;              // per second; 0 where the book has none
  collector::ArrivalCounts arrivals = {};
  double lateness = 0;  // seconds per second, against the first rank of the node to arrive
};

// The ranks of one communicator that have one source of durations: only these are compared.
struct PeerRates {
  collector::CommunicatorKey key;
  std::vector<RankRates> ranks;  // by rank
  bool spans_nodes = false;
  // Its members differ in sends and receives: stages of a pipeline, which are unequal by design.
  bool is_pipeline = false;
  // RankRates::busy is what exceeds the usual time of each (usual_times.h).
  bool exceeds_usual = false;
  // Whether its ranks can be compared with each other.
  bool IsComparable() const { return !is_pipeline || exceeds_usual; }
  // comm:nccl_steps:rate, where the lateness of a rank is lost once per step and not once per
  // operation.
  std::optional<double> steps;
  double median_timed_collectives = 0;  // of all sources
};

struct NodeRates {
  std::vector<PeerRates> peers;
  std::vector<ProcessRates> processes;
};

// Rates of the ranks of `node` that live or ended lately, over Thresholds::window before the newest
// step. Empty until the history has a step.
NodeRates RatesOf(const collector::NodeSnapshot& node, const NodeHistory& history,
                  const Thresholds& times);

// PromQL's quantile(): between two values, the line between them. `share` is 0 to 1, `values` is
// not empty.
double Quantile(double share, std::vector<double> values);

// The usual value: the larger one of two, since one rank waits for the other, or the median of
// more.
double UsualOf(const std::vector<double>& values);

}  // namespace nccl_exporter::exporter
