// SPDX-License-Identifier: Apache-2.0
// The profiler's events of one operation of the progress thread and of its steps. Called by that
// thread only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/loader/profiler_plugin.h"
#include "simulator/network/proxy_operation.h"
#include "simulator/release/release.h"

namespace nccl_exporter::sim {

// Fields of the operation's events, in NCCL's sub-arguments.
struct ProxyIdentity {
  void* context = nullptr;
  void* parent = nullptr;  // handle of the task
  int rank = 0;
  int pid = 0;
  int channel = 0;
  int peer = 0;
  uint32_t mask = 0;  // of the task
  uint64_t chunk_bytes = 0;
};

class ProxyEvents {
 public:
  ProxyEvents(const Release& release, const ProfilerPlugin& plugin, const ProxyIdentity& identity,
              ProxyOperation operation)
      : release_(release), plugin_(plugin), identity_(identity), operation_(std::move(operation)) {}

  // Before the start: after half of its steps the operation is given up, without any further event.
  void AbortHalfway() { abort_after_ = operation_.steps() / 2; }
  // Before the start, where no steps are reported: goes through the operation. Returns its end.
  int64_t RunUnseen(int64_t begin_ns) { return operation_.RunUnseen(begin_ns); }

  void Start(int64_t now_ns);
  // The operation enters its progress (2.27 and later).
  void Begin(int64_t now_ns);
  // One call of NCCL's progress function. Returns when the next one is due, or kNever.
  int64_t Progress(int64_t now_ns);
  // With steps: the states of the operation have come with them. Without, all at once (up to 2.26).
  void Stop(int64_t now_ns);

  bool HasSteps() const;
  // The plugin gave the operation a handle, and its steps are reported.
  bool IsReported() const { return handle_ != nullptr && HasSteps(); }
  void* handle() const { return handle_; }
  int peer() const { return identity_.peer; }
  bool IsAborted() const { return is_aborted_; }
  const ProxyOperation& operation() const { return operation_; }

 private:
  void Call(const StepCall& call, int64_t now_ns);
  void StartStep(int step, int64_t now_ns);
  void RecordStep(const StepCall& call, int64_t now_ns);
  void StopStep(int step, int64_t now_ns);
  void RecordOperation(EventState state, int steps, int64_t now_ns);
  void*& SlotOf(int step) { return steps_[static_cast<size_t>(step) % kMostOverlap]; }

  const Release& release_;
  const ProfilerPlugin& plugin_;
  const ProxyIdentity identity_;
  ProxyOperation operation_;
  int abort_after_ = -1;  // -1: never
  bool is_aborted_ = false;
  void* handle_ = nullptr;
  std::array<void*, kMostOverlap> steps_{};  // NCCL's slots
  std::vector<StepCall> calls_;
  int stopped_ = -1;  // the first step that ended in this poll
  // sub->transSize: before the first transfer it is that of other work.
  uint64_t transferred_ = 4242;
};

}  // namespace nccl_exporter::sim
