// SPDX-License-Identifier: Apache-2.0
// Moments at which NCCL's progress thread took one step of an operation further.
#pragma once

#include <array>
#include <cstdint>

namespace nccl_exporter::sim {

// A send has the first four:
//   [0] the buffer is the GPU's (step started, state 8), [1] its data are seen (20), [2] they are
//   posted to the adapter (9), [3] the network is done (stop).
// A receive has all:
//   [0] the first try to post it (start), [1] posted (10), [2] received (11), [3] flushed (12),
//   [4] read by the GPU (stop).
struct StepMarks {
  static constexpr int64_t kNotYet = -1;

  std::array<int64_t, 5> at_ns{kNotYet, kNotYet, kNotYet, kNotYet, kNotYet};
  uint64_t bytes = 0;
};

}  // namespace nccl_exporter::sim
