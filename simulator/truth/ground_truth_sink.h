// SPDX-License-Identifier: Apache-2.0
// Reports of the player about what it plays: all that it knows of the ground truth that a plugin is
// compared with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/collective.h"
#include "simulator/network/step_marks.h"

namespace nccl_exporter::sim {

enum class Timing : uint8_t { kNone, kProxy, kKernelCpu, kKernel };

struct Interval {
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
};

// One operation among those that share a launch. Its interval grows with the events that NCCL
// delivers.
struct LaunchMember {
  Function function = Function::kAllReduce;
  uint64_t bytes = 0;
  // There are events that show a plugin its completion, or it is known that none will come.
  bool shows_its_end = false;
  size_t operation = 0;  // its place in the list of operations
  std::optional<Interval> interval = {};

  void Cover(uint64_t start_ns, uint64_t stop_ns);
};

// Properties of a task with kernel events that decide whether it brings drift.
struct LaunchedTask {
  bool is_p2p = false;
  bool is_to_self = false;
  bool has_unplayed_channels = false;
};

// An operation of the progress thread that has come to its end.
struct NetworkOperation {
  bool is_send = false;
  int peer = 0;                       // a rank of the communicator
  bool is_reported = false;           // the plugin got it and its steps, and gave it a handle
  std::vector<StepMarks> steps = {};  // with all marks
};

// Sink of one communicator on one rank. Any thread may call any method.
class GroundTruthSink {
 public:
  virtual ~GroundTruthSink() = default;

  virtual void AddCall(Function function) = 0;
  // Returns its place in the list of operations.
  virtual size_t AddOperation(Function function, uint64_t bytes, int64_t start_ns) = 0;
  // All members of a launch have run to their end.
  virtual void CompleteLaunch(const std::vector<LaunchMember>& members) = 0;

  virtual void AddNetworkOperation(const NetworkOperation& operation) = 0;
  // Operations that began and that the plugin took; `is_foreign`: of another process (PXN).
  virtual void AddReportedNetworkOperation(bool is_foreign) = 0;

  // For the list: the intervals are those of the kernel, whatever is reported.
  virtual void ListDurations(const std::vector<LaunchMember>& members) = 0;
  virtual void MarkAffected(size_t operation) = 0;

  // Whether the communicator is untimed from this launch on. `replays_after_eager`: a captured
  // graph's, and the communicator's latest call was not a captured one.
  virtual bool BringsDrift(const std::vector<LaunchedTask>& tasks,
                           bool replays_after_eager) const = 0;
};

inline void LaunchMember::Cover(uint64_t start_ns, uint64_t stop_ns) {
  if (!interval) interval = Interval{start_ns, stop_ns};
  interval->start_ns = std::min(interval->start_ns, start_ns);
  interval->stop_ns = std::max(interval->stop_ns, stop_ns);
}

}  // namespace nccl_exporter::sim
