// SPDX-License-Identifier: Apache-2.0
// Workload of the simulated job: its communicators and, for every step, its groups of calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/workload/cluster_shape.h"
#include "simulator/workload/elastic.h"
#include "simulator/workload/group.h"
#include "simulator/workload/layout_builder.h"
#include "simulator/workload/random_groups.h"

namespace nccl_exporter::sim {

struct WorkloadOptions {
  std::string layout = "dp";
  std::string calls = {};  // in place of a layout; see call_list.h
  ClusterShape shape;
  uint64_t seed = 1;
  int aggregate = 1;           // groups of the layout that are joined to one
  int64_t split_at_step = -1;  // ncclCommSplit of the first communicator into halves; -1: never
  // ncclCommShrink of the first communicator by its last rank; -1: never.
  int64_t shrink_at_step = -1;
  std::optional<ElasticChange> elastic = {};
};

class Workload {
 public:
  explicit Workload(const WorkloadOptions& options);

  const ClusterShape& shape() const { return builder_.shape(); }
  const std::vector<Communicator>& communicators() const { return builder_.communicators(); }
  // In the order in which every rank calls them.
  std::vector<Group> GroupsOfStep(int64_t step) const;

 private:
  void Aggregate(int count);
  void Split(int64_t step);
  void Shrink(int64_t step);
  void Begin(const ElasticChange& change);
  Group Changed(Group group, int64_t step) const;
  Group VariedGroup(int64_t step) const;
  void WriteRandom();
  std::vector<Group> RandomGroupsOf(int64_t step) const;

  uint64_t seed_;
  LayoutBuilder builder_;
  std::vector<Group> groups_;  // of every step
  bool has_variety_ = false;
  std::optional<ElasticChange> elastic_;
  int successor_ = 0;  // takes the calls of the first communicator after the change
  std::vector<CommunicatorFamily> random_families_;  // of the layout `random`
};

}  // namespace nccl_exporter::sim
