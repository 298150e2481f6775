// SPDX-License-Identifier: Apache-2.0
// TracePlace, where a communicator is in the nodes of a trace; CommunicatorName, by which the ranks
// of one communicator know each other; TraceRanks, their numbers in the job; and names as people
// read them. For any thread.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/trace/node_trace.h"
#include "exporter/text/number_in.h"

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

inline CommunicatorName NameIn(const TracedNodes& nodes, const TracePlace& place) {
  const collector::TracedProcess& process = place.ProcessIn(nodes);
  const collector::TracedCommunicator& communicator = place.CommunicatorIn(nodes);
  return {.id = communicator.id,
          .ranks = communicator.ranks,
          .job = process.job,
          .name_space = process.name_space};
}

// The global rank of a process; nothing if it is not known, or no number.
inline std::optional<uint64_t> GlobalRankOf(const collector::TracedProcess& process) {
  return NumberIn<uint64_t>(process.global_rank);
}

// The global ranks of a trace, by which its processes are named: whatever names a rank of a
// communicator asks for its global rank here.
class TraceRanks {
 public:
  // `nodes` outlive this object.
  explicit TraceRanks(const TracedNodes& nodes) : nodes_(nodes) {
    VisitCommunicators(nodes, [&](const TracePlace& place, const auto& communicator) {
      const std::optional<uint64_t> global_rank = GlobalRankOf(place.ProcessIn(nodes));
      if (global_rank && communicator.has_identity)
        ranks_[{NameIn(nodes, place), communicator.rank}] = *global_rank;
    });
  }

  // Global rank of a rank of the communicator, which may be on another node. Nothing if the trace
  // has no process of it, or no global rank of that.
  std::optional<uint64_t> GlobalOf(const TracePlace& communicator, uint64_t rank) const {
    const auto found = ranks_.find({NameIn(nodes_, communicator), rank});
    return found == ranks_.end() ? std::nullopt : std::optional(found->second);
  }

  // "rank 11", as its process is named; else "communicator rank 3".
  std::string TextOf(const TracePlace& communicator, uint64_t rank) const {
    const std::optional<uint64_t> global = GlobalOf(communicator, rank);
    return global ? fmt::format("rank {}", *global) : fmt::format("communicator rank {}", rank);
  }

 private:
  const TracedNodes& nodes_;
  std::map<std::pair<CommunicatorName, uint64_t>, uint64_t> ranks_;
};

// Its name with its id, or the id if it has none.
inline std::string DisplayNameOf(const collector::TracedCommunicator& communicator) {
  const std::string id = fmt::format("{:016x}", communicator.id);
  return communicator.name.empty() ? id : communicator.name + " " + id;
}

// "rank 5 (node-0, pid 4711)".
inline std::string DisplayNameOf(const collector::NodeTrace& node,
                                 const collector::TracedProcess& process) {
  const std::string rank = process.global_rank.empty() ? "" : "rank " + process.global_rank + " ";
  return fmt::format("{}({}, pid {}{})", rank, node.node, process.pid,
                     process.is_alive ? "" : ", ended");
}

}  // namespace nccl_exporter::exporter
