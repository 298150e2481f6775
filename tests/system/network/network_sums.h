// SPDX-License-Identifier: Apache-2.0
// Sums of network time that the plugin has written to the segments of a job, and what it lost.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "proto/collective.h"
#include "proto/loss.h"
#include "proto/network_state.h"

namespace nccl_exporter {

struct NetworkSums {
  std::array<uint64_t, kNetworkStateCount> wait_ns{};  // by NetworkState
  uint64_t bytes = 0;
  uint64_t operations = 0;
};

struct CommunicatorSums {
  std::array<NetworkSums, kNetworkDirectionCount> network{};  // by NetworkDirection
  // By Function.
  std::array<uint64_t, kFunctionCount> completed{};
  std::array<uint64_t, kFunctionCount> timed_operations{};
  std::array<uint64_t, kFunctionCount> bytes{};                // message bytes of all operations
  std::array<uint64_t, kFunctionCount> network_timed_bytes{};  // of those with network time
};

struct SegmentSums {
  // By the id of the communicator, as the ground truth has it, and the rank.
  std::map<std::pair<std::string, int>, CommunicatorSums> communicators;
  std::array<uint64_t, kLossCount> losses{};  // by Loss, of all processes

  uint64_t Lost(Loss loss) const { return losses[static_cast<size_t>(loss)]; }
};

// Sums of all segments in a folder. The jobs have ended.
SegmentSums ReadSegmentSums(const std::string& folder);

}  // namespace nccl_exporter
