// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/network_account.h"

#include <algorithm>

namespace nccl_exporter::sim {
namespace {

struct Stretch {
  NetworkState state;
  size_t from;  // places in StepMarks::at_ns
  size_t until;
};
constexpr std::array kSend{Stretch{NetworkState::kGpu, 0, 1}, Stretch{NetworkState::kPeer, 1, 2},
                           Stretch{NetworkState::kNetwork, 2, 3}};
constexpr std::array kReceive{
    Stretch{NetworkState::kPeer, 0, 1}, Stretch{NetworkState::kNetwork, 1, 2},
    Stretch{NetworkState::kFlush, 2, 3}, Stretch{NetworkState::kGpu, 3, 4}};

}  // namespace

std::string_view NameOf(NetworkState state) {
  switch (state) {
    case NetworkState::kGpu:
      return "gpu";
    case NetworkState::kPeer:
      return "peer";
    case NetworkState::kNetwork:
      return "network";
    default:
      return "flush";
  }
}

// A step has the time from the end of the step before it, or from its own start if that is later.
// What it went through before that belongs to earlier steps.
void NetworkCounts::Add(const NetworkOperation& operation) {
  const size_t end = operation.is_send ? kSend.back().until : kReceive.back().until;
  ++operations;
  int64_t former_end_ns = operation.steps.front().at_ns[0];
  for (const StepMarks& step : operation.steps) {
    const int64_t head_ns = std::max(former_end_ns, step.at_ns[0]);
    between_ns += static_cast<uint64_t>(head_ns - former_end_ns);
    const auto add = [&](const Stretch& stretch) {
      const int64_t ns = step.at_ns[stretch.until] - std::max(head_ns, step.at_ns[stretch.from]);
      state_ns[static_cast<size_t>(stretch.state)] +=
          static_cast<uint64_t>(std::max<int64_t>(ns, 0));
    };
    if (operation.is_send) {
      std::for_each(kSend.begin(), kSend.end(), add);
    } else {
      std::for_each(kReceive.begin(), kReceive.end(), add);
    }
    former_end_ns = step.at_ns[end];
    ++steps;
    bytes += step.bytes;
  }
  total_ns += static_cast<uint64_t>(former_end_ns - operation.steps.front().at_ns[0]);
}

}  // namespace nccl_exporter::sim
