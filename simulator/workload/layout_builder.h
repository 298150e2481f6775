// SPDX-License-Identifier: Apache-2.0
// Collects the communicators and groups of a parallel layout.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "simulator/workload/cluster_shape.h"
#include "simulator/workload/group.h"

namespace nccl_exporter::sim {

class LayoutBuilder {
 public:
  explicit LayoutBuilder(const ClusterShape& shape) : shape_(shape) {}

  const ClusterShape& shape() const { return shape_; }
  const std::vector<Communicator>& communicators() const { return communicators_; }
  const std::vector<Group>& groups() const { return groups_; }

  // Each returns the numbers of the communicators that it adds: one over all ranks, one for every
  // `size` neighbouring ranks, one for every set of ranks `distance` apart.
  std::vector<int> AddWorld(std::string_view name) { return AddNeighbours(name, shape_.ranks()); }
  std::vector<int> AddNeighbours(std::string_view name, int size);
  std::vector<int> AddStrided(std::string_view name, int distance);
  int Add(std::string_view name, std::vector<int> members, int64_t first_step = 0);

  // The same call on each of the communicators, of which a rank is in at most one; in a group of
  // its own.
  void Exposed(std::span<const int> communicators, const Call& call) {
    Append(communicators, {&call, 1}, false);
  }
  void Overlapped(std::span<const int> communicators, const Call& call) {
    Append(communicators, {&call, 1}, true);
  }
  // Never part of a captured graph.
  void Eager(std::span<const int> communicators, const Call& call) {
    Exposed(communicators, call);
    groups_.back().is_capturable = false;
  }
  // The latest group is called in this step only.
  void OnlyInStep(int64_t step) {
    groups_.back().only_step = step;
    groups_.back().is_capturable = false;
  }
  void Grouped(std::span<const int> communicators, std::span<const Call> calls) {
    Append(communicators, calls, false);
  }

 private:
  void Append(std::span<const int> communicators, std::span<const Call> calls,
              bool overlaps_compute);

  ClusterShape shape_;
  std::vector<Communicator> communicators_;
  std::vector<Group> groups_;
};

}  // namespace nccl_exporter::sim
