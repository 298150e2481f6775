// SPDX-License-Identifier: Apache-2.0
// CollectiveKey, what tells one collective apart from all others of the nodes of a trace. For any
// thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "collector/trace/node_trace.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {

// As collector::CommunicatorKey, without the user: a user may have different numbers on two nodes.
struct CommunicatorName {
  uint64_t id = 0;
  uint64_t ranks = 0;
  std::string job;
  std::string name_space;

  auto operator<=>(const CommunicatorName&) const = default;
};

struct CollectiveKey {
  CommunicatorName communicator;
  Function function = Function::kOther;
  uint64_t sequence = 0;

  auto operator<=>(const CollectiveKey&) const = default;
};

inline CommunicatorName NameOf(const collector::TracedProcess& process,
                               const collector::TracedCommunicator& communicator) {
  return {.id = communicator.id,
          .ranks = communicator.ranks,
          .job = process.job,
          .name_space = process.name_space};
}

}  // namespace nccl_exporter::exporter
