// SPDX-License-Identifier: Apache-2.0
// NodeTrace, the operations of one node in one window of time, as plain data: what the segments'
// rings of recent completions and of operations in flight held. For any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/collective.h"
#include "proto/loss.h"
#include "proto/timing_source.h"

namespace nccl_exporter::collector {

// No time of a trace is beyond this, so that differences of two do not overflow. 73 years.
inline constexpr int64_t kMostTraceNs = int64_t{1} << 61;

// Operations of one trace: 640 MB of memory, and 8 ranks with 1,000 operations a second for 20
// minutes. Users share the number equally; TracedCommunicator::beyond_limit counts the rest.
inline constexpr size_t kMostTracedOperations = 10'000'000;

// An operation that was timed. Its times are what the process wrote: any number is possible.
struct TracedOperation {
  Function function = Function::kOther;
  uint64_t sequence = 0;     // NCCL's number of the function on its communicator; Send and Recv: 0
  int64_t call_ns = 0;       // CLOCK_MONOTONIC of the node
  int64_t start_ns = 0;      // in the clock of the timing source
  int64_t stop_ns = 0;       // in the same clock
  int64_t delivered_ns = 0;  // CLOCK_MONOTONIC, when the plugin received the stop
  uint64_t bytes = 0;
  uint64_t members = 1;  // operations of its launch, itself included

  bool operator==(const TracedOperation&) const = default;
};

// An operation that was called and not known complete at the end of the window.
struct TracedInFlight {
  Function function = Function::kOther;
  uint64_t sequence = 0;
  int64_t call_ns = 0;  // CLOCK_MONOTONIC
  uint64_t bytes = 0;
  int peer = -1;  // of Send and Recv
  uint32_t parts_announced = 0;
  uint32_t parts_done = 0;

  bool operator==(const TracedInFlight&) const = default;
};

struct TracedCommunicator {
  bool has_identity = false;  // id and rank are known
  uint64_t id = 0;
  std::string name;
  uint64_t ranks = 0;  // 0: not known
  uint64_t rank = 0;
  int api_version = 0;
  int nccl_version = 0;  // 22907 for 2.29.7; 0: not known
  int gpu_index = -1;    // -1: not known
  std::string gpu_uuid;  // of the clock of kernel times; empty: not known
  TimingSource timing_source = TimingSource::kNone;
  TimingReason timing_reason = TimingReason::kDefault;

  std::vector<TracedOperation> operations;  // in the order of their completion
  std::vector<TracedInFlight> in_flight;    // at the end of the window, oldest first
  bool in_flight_is_known = false;          // false: no event shows the end of its operations
  // Operations of each function that were started since the communicator was made, those in flight
  // included. Nothing in a file of an earlier version.
  std::optional<std::vector<uint64_t>> started;

  // CLOCK_MONOTONIC: of the operations that were delivered since, none is missing but for the
  // counts below. Later than the window's begin if the ring did not reach back so far.
  int64_t whole_since_ns = 0;
  uint64_t overwritten = 0;         // operations of the window that the ring lost between two reads
  uint64_t beyond_limit = 0;        // operations that were read and left out: see OperationRecorder
  std::optional<uint64_t> untimed;  // completed in the window without times; nothing: not counted

  bool operator==(const TracedCommunicator&) const = default;

  // Whether start_ns and stop_ns are of the GPU's clock. A communicator whose time stamps were
  // found to drift has no source any more; what it recorded before is of the GPU's clock.
  bool ReadsGpuClock() const {
    return timing_source == TimingSource::kKernel || timing_source == TimingSource::kNone;
  }
  // Whether no kernel starts before its call_ns: earlier APIs announce a call after the launch.
  bool CallIsBound() const { return api_version >= 5; }
};

struct TracedProcess {
  uint64_t pid = 0;  // in its own PID namespace
  uint64_t uid = 0;
  std::string executable;
  std::string global_rank;  // empty: not known, or it numbers processes
  std::string job;          // Slurm's number; empty: not known
  std::string name_space;   // of Kubernetes
  std::string pod;
  bool is_alive = false;  // at the end of the window
  // Counted in the window; since the start of the process where the window was not polled.
  std::array<uint64_t, kLossCount> losses{};
  std::vector<TracedCommunicator> communicators;

  bool operator==(const TracedProcess&) const = default;
};

struct NodeTrace {
  std::string node;
  int64_t realtime_offset_ns = 0;  // CLOCK_REALTIME minus CLOCK_MONOTONIC, at the end
  int64_t begin_ns = 0;            // CLOCK_MONOTONIC
  int64_t end_ns = 0;
  bool is_polled = false;  // read from begin to end; false: read once, at the end
  std::vector<TracedProcess> processes;

  bool operator==(const NodeTrace&) const = default;
};

}  // namespace nccl_exporter::collector
