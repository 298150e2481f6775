// SPDX-License-Identifier: Apache-2.0
// Communicators that have the same labels, and are therefore one to Prometheus.
//
// Label sets are nearly always one communicator's alone. They coincide when a communicator is made anew with the same
// id (the closed one is still served for the retention time), when two processes outside any job report the same id and
// rank, where labels are dropped, and, by design, for comm="other". Then counters and histograms are summed, gauges are
// merged as their rows say (communicator_series.cc), and info metrics are those of each member in use.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"

namespace nccl_exporter {

struct Member {
  const ProcessSnapshot* process = nullptr;
  const CommunicatorSnapshot* communicator = nullptr;
  bool has_departed = false;  // the last counts of members that are gone: see departed_counts.h

  bool IsInUse() const { return !has_departed && process->is_alive && !communicator->is_closed; }
};

struct Subject {
  SharedLabels labels;
  std::vector<Member> members;  // at least one that has not departed

  // The member in use that was created last; if none is in use, the one created last.
  const Member& Newest() const;

  // The members in use; if none is, the newest alone.
  std::vector<const Member*> InUse() const;

  // When the first member was created: sums count since then.
  int64_t CreatedRealtimeNs() const;
};

}  // namespace nccl_exporter
