// SPDX-License-Identifier: Apache-2.0
// TracePlace, where a communicator is in the nodes of a trace, and CommunicatorName, by which the
// ranks of one communicator know each other. For any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "collector/trace/node_trace.h"

namespace nccl_exporter::exporter {

using TracedNodes = std::vector<collector::NodeTrace>;

struct TracePlace {
  uint32_t node = 0, process = 0, communicator = 0;

  auto operator<=>(const TracePlace&) const = default;

  const collector::TracedProcess& ProcessIn(const TracedNodes& nodes) const {
    return nodes[node].processes[process];
  }
  const collector::TracedCommunicator& CommunicatorIn(const TracedNodes& nodes) const {
    return ProcessIn(nodes).communicators[communicator];
  }
};

// Calls `visit` with the place of each communicator, and the communicator.
template <typename Visit>
void VisitCommunicators(const TracedNodes& nodes, const Visit& visit) {
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    for (uint32_t p = 0; p < nodes[n].processes.size(); ++p) {
      const auto& communicators = nodes[n].processes[p].communicators;
      for (uint32_t c = 0; c < communicators.size(); ++c)
        visit(TracePlace{n, p, c}, communicators[c]);
    }
  }
}

// As collector::CommunicatorKey, without the user: a user may have different numbers on two nodes.
struct CommunicatorName {
  uint64_t id = 0;
  uint64_t ranks = 0;
  std::string job;
  std::string name_space;

  auto operator<=>(const CommunicatorName&) const = default;
};

inline CommunicatorName NameOf(const collector::TracedProcess& process,
                               const collector::TracedCommunicator& communicator) {
  return {.id = communicator.id,
          .ranks = communicator.ranks,
          .job = process.job,
          .name_space = process.name_space};
}

}  // namespace nccl_exporter::exporter
