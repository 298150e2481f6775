// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/layout_builder.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace nccl_exporter::sim {

int LayoutBuilder::Add(std::string_view name, std::vector<int> members, int64_t first_step) {
  std::set<int> nodes;
  for (const int rank : members) nodes.insert(shape_.NodeOf(rank));
  communicators_.push_back(
      {std::string(name), std::move(members), static_cast<int>(nodes.size()), first_step});
  return static_cast<int>(communicators_.size()) - 1;
}

std::vector<int> LayoutBuilder::AddNeighbours(std::string_view name, int size) {
  std::vector<int> added;
  for (int first = 0; first < shape_.ranks(); first += size) {
    std::vector<int> members;
    for (int rank = first; rank < std::min(first + size, shape_.ranks()); ++rank)
      members.push_back(rank);
    added.push_back(Add(name, std::move(members)));
  }
  return added;
}

std::vector<int> LayoutBuilder::AddStrided(std::string_view name, int distance) {
  std::vector<int> added;
  for (int first = 0; first < distance; ++first) {
    std::vector<int> members;
    for (int rank = first; rank < shape_.ranks(); rank += distance) members.push_back(rank);
    added.push_back(Add(name, std::move(members)));
  }
  return added;
}

void LayoutBuilder::Append(std::span<const int> communicators, std::span<const Call> calls,
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
