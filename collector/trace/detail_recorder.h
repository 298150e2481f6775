// SPDX-License-Identifier: Apache-2.0
// DetailRecorder, which asks one process for details of its operations, reads what comes, and puts
// operations, channels and steps together. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collector/trace/node_trace.h"
#include "collector/trace/trace_memory.h"

namespace nccl_exporter::collector {

class DetailRecorder {
 public:
  // Asks. `most_parts`: records that are kept; the rest is counted. `clock_offset_ns`: see
  // ProcessSnapshot.
  DetailRecorder(pid_t pid, int64_t owner_start_ns, const TraceMemory::Request& request,
                 size_t most_parts = kMostTracedParts, int64_t clock_offset_ns = 0);

  void Read();

  // Why there is nothing; empty: the process has taken the request.
  std::string Fault() const;
  // Returns the detail of the communicator in that slot, without operations that were called after
  // `end_ns` (CLOCK_MONOTONIC). Once for each slot.
  TracedDetail Take(uint32_t slot, int64_t end_ns);

 private:
  // As they came.
  struct Channel {
    uint64_t ticket = 0;
    TracedChannel traced;
  };
  struct NetworkOperation {
    uint32_t key = 0;
    std::optional<uint64_t> ticket;
    TracedNetworkOperation traced;
  };
  struct Step {
    uint32_t key = 0;
    TracedStep traced;
  };
  struct Slot {
    std::vector<DetailedOperation> operations;
    std::vector<Channel> channels;
    std::vector<NetworkOperation> network_operations;
    std::vector<Step> steps;
    uint64_t beyond_limit = 0;
  };
  void Add(std::span<const uint64_t> record, Slot& slot) const;
  // A time of the process's CLOCK_MONOTONIC, by ours.
  int64_t OwnTimeOf(uint64_t ns) const;

  const bool has_steps_;
  size_t parts_left_;
  const int64_t clock_offset_ns_;
  std::string fault_;
  std::unique_ptr<TraceMemory> memory_;
  std::map<uint32_t, Slot> slots_;
};

}  // namespace nccl_exporter::collector
