// SPDX-License-Identifier: Apache-2.0
#include "simulator/truth/network_account.h"

#include <algorithm>
#include <span>

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

// State of a step that is the oldest from its start on.
NetworkState FirstState(const StepMarks& step, std::span<const Stretch> stretches) {
  const auto has_length = [&](const Stretch& stretch) {
    return step.at_ns[stretch.until] > step.at_ns[stretch.from];
  };
  const auto first = std::find_if(stretches.begin(), stretches.end(), has_length);
  return first != stretches.end() ? first->state : stretches.back().state;
}

// A step has the time from the end of the step before it, or from its own start if that is later.
// What it went through before that belongs to earlier steps.
void NetworkCounts::Add(const NetworkOperation& operation) {
  const std::span<const Stretch> stretches =
      operation.is_send ? std::span<const Stretch>(kSend) : kReceive;
  ++operations;
  int64_t former_end_ns = operation.steps.front().at_ns[0];
  for (const StepMarks& step : operation.steps) {
    const int64_t head_ns = std::max(former_end_ns, step.at_ns[0]);
    between_ns[static_cast<size_t>(FirstState(step, stretches))] +=
        static_cast<uint64_t>(head_ns - former_end_ns);
    for (const Stretch& stretch : stretches) {
      const int64_t ns = step.at_ns[stretch.until] - std::max(head_ns, step.at_ns[stretch.from]);
      state_ns[static_cast<size_t>(stretch.state)] +=
          static_cast<uint64_t>(std::max<int64_t>(ns, 0));
    }
    former_end_ns = step.at_ns[stretches.back().until];
    ++steps;
    bytes += step.bytes;
  }
  total_ns += static_cast<uint64_t>(former_end_ns - operation.steps.front().at_ns[0]);
}

}  // namespace nccl_exporter::sim
