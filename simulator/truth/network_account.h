// SPDX-License-Identifier: Apache-2.0
// Account of where the time of network operations goes: from the moments at which the progress
// thread took each step further, and from nothing that a plugin keeps.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "simulator/truth/ground_truth_sink.h"

namespace nccl_exporter::sim {

enum class NetworkState : uint8_t { kGpu, kPeer, kNetwork, kFlush, kCount };
std::string_view NameOf(NetworkState state);

struct NetworkCounts {
  uint64_t operations = 0;
  uint64_t steps = 0;
  uint64_t bytes = 0;
  std::array<uint64_t, 4> state_ns{};  // by NetworkState; the steps share the operation's time
  // No step was under way, as the thread had not come round: by the first state with a length of
  // the step that then came.
  std::array<uint64_t, 4> between_ns{};
  uint64_t total_ns = 0;  // from the start of the first step to the end of the last

  void Add(const NetworkOperation& operation);
};

}  // namespace nccl_exporter::sim
