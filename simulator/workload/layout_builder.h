// SPDX-License-Identifier: Apache-2.0
// Collects the communicators and groups of a parallel layout.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  void RemoveLastMember(int communicator) {
    communicators_[static_cast<size_t>(communicator)].members.pop_back();
  }
  void AbortIn(int64_t step, int communicator) {
    communicators_[static_cast<size_t>(communicator)].aborted_step = step;
  }

  // One call on each of the communicators, of which a rank is in at most one; in a group of its
  // own.
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

inline int LayoutBuilder::Add(std::string_view name, std::vector<int> members, int64_t first_step) {
  std::set<int> nodes;
  for (const int rank : members) nodes.insert(shape_.NodeOf(rank));
  communicators_.push_back(
      {std::string(name), std::move(members), static_cast<int>(nodes.size()), first_step, -1});
  return static_cast<int>(communicators_.size()) - 1;
}

inline std::vector<int> LayoutBuilder::AddNeighbours(std::string_view name, int size) {
  std::vector<int> added;
  for (int first = 0; first < shape_.ranks(); first += size) {
    std::vector<int> members;
    for (int rank = first; rank < std::min(first + size, shape_.ranks()); ++rank)
      members.push_back(rank);
    added.push_back(Add(name, std::move(members)));
  }
  return added;
}

inline std::vector<int> LayoutBuilder::AddStrided(std::string_view name, int distance) {
  std::vector<int> added;
  for (int first = 0; first < distance; ++first) {
    std::vector<int> members;
    for (int rank = first; rank < shape_.ranks(); rank += distance) members.push_back(rank);
    added.push_back(Add(name, std::move(members)));
  }
  return added;
}

inline void LayoutBuilder::Append(std::span<const int> communicators, std::span<const Call> calls,
                                  bool overlaps_compute) {
  Group group{.id = static_cast<int>(groups_.size()), .overlaps_compute = overlaps_compute};
  for (const int communicator : communicators) {
    for (Call call : calls) {
      call.communicator = communicator;
      group.calls.push_back(call);
    }
  }
  groups_.push_back(std::move(group));
}

}  // namespace nccl_exporter::sim
