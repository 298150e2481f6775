// SPDX-License-Identifier: Apache-2.0
// Way of an operation's data over the network, hop by hop and step by step: when GPUs have data,
// receivers post buffers, and bytes arrive. Pure: two processes compute the same hop.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/workload/transfer.h"

namespace nccl_exporter::sim {

// NCCL_STEPS: steps of one channel that can be under way.
inline constexpr int kMostOverlap = 8;

// A hop leads from each rank to the next one, and in a ring from the last to the first. In a ring a
// GPU hands on what it receives; it sends its own part first.
struct Path {
  struct Rank {
    int64_t launched_ns = 0;  // its proxy thread gets the operation
    int64_t start_ns = 0;     // its GPU begins
  };
  std::vector<Rank> ranks = {};
  std::vector<HopTimes> hops = {};  // as many as ranks in a ring, else one less
  int steps = 1;
  int overlap = kMostOverlap;
  int64_t stop_ns = 0;  // the GPUs are done; kNever: the wires are dead

  bool is_ring() const { return hops.size() == ranks.size(); }
};

// Times of the job at which something happens, whenever a progress thread sees it; kNever: not.
struct StepTimes {
  // At the sender.
  int64_t ready_ns = 0;   // the GPU has written the data
  int64_t credit_ns = 0;  // the receiver's buffer is known
  int64_t sent_ns = 0;    // the network is done
  // At the receiver.
  int64_t taken_ns = 0;  // the adapter takes up the receive
  int64_t received_ns = 0;
  int64_t flushed_ns = 0;
  int64_t consumed_ns = 0;  // the GPU has read it
};

// Times of each step, by hop. The last step is consumed at about `stop_ns`: the pace is that of the
// slowest hop, as the collective is as slow as that.
std::vector<std::vector<StepTimes>> StepsOf(const Path& path);

}  // namespace nccl_exporter::sim
