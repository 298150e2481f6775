// SPDX-License-Identifier: Apache-2.0
// Effects of a job's incidents on one step of the cluster: late ranks, longer computing, slower
// links, and ranks that call no more. Pure: the same in every process.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/workload/cluster_shape.h"
#include "simulator/workload/group.h"
#include "simulator/workload/incident.h"
#include "simulator/workload/transfer.h"

namespace nccl_exporter::sim {

class Conditions {
 public:
  Conditions(std::vector<Incident> incidents, const ClusterShape& shape, uint64_t seed,
             int64_t period_ns);

  // The next step begins: the first of its threads does at that time. A step is under the
  // conditions of its beginning.
  void BeginStep(int64_t step, int64_t began_ns);

  // By how much the rank's program comes late to its first call.
  int64_t LateNs(int rank) const;
  // Time that the rank's GPU computes longer in the whole step.
  int64_t ExtraComputeNs(int rank) const;
  // Factor of the time of a communicator's transfers.
  double TransferTimes(const Communicator& communicator) const;

  // Factor by which the rank's own adapter lengthens an operation between nodes.
  double AdapterTimes(int rank) const;
  // A hop between two ranks of the communicator. Where no hop of its ring goes over a slow link
  // that it spans, all its hops between nodes are slow, since the operation is.
  HopTimes HopOf(const Communicator& communicator, int sender, int receiver) const;
  // Whether any hop may be slow at all.
  bool HasSlowHops() const;

  // Whether that one of the step's `groups` groups is called at all; is missed by that rank; is
  // called by that rank as another call.
  bool IsCalled(size_t group, size_t groups) const;
  bool IsMissed(int rank, size_t group, size_t groups) const;
  bool IsMismatched(int rank, size_t group, size_t groups) const;
  // Whether the communicator's part of the group never ends. A rank that makes another call makes
  // its sends and receives as the others expect.
  bool Hangs(const Communicator& communicator, bool is_collective, size_t group,
             size_t groups) const;

  // When in this step the rank's process is killed (kKill) or stopped (kStop); kNever if it is not.
  int64_t LeavesNs(IncidentKind kind, int rank) const;

 private:
  bool HasStruck(const Incident& incident, size_t group, size_t groups) const;
  double TimesNow(const Incident& incident) const;
  bool Crosses(const Incident& link, int sender, int receiver) const;
  bool RingCrosses(const Communicator& communicator, const Incident& link) const;
  bool Spans(const Communicator& communicator, const Incident& incident) const;
  double ComputeShare(const Incident& incident, int rank) const;

  const std::vector<Incident> incidents_;
  const ClusterShape shape_;
  const uint64_t seed_;
  const int64_t period_ns_;
  int64_t step_ = 0;
  int64_t began_ns_ = -1;
  int64_t began_before_ns_ = -1;  // the step before
};

}  // namespace nccl_exporter::sim
