// SPDX-License-Identifier: Apache-2.0
// One operation in the hands of NCCL's progress thread: what each call of its progress function
// does, and when the next call finds something to do. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/network/path.h"
#include "simulator/network/step_marks.h"
#include "simulator/release/profiler_event.h"

namespace nccl_exporter::sim {

// Rhythm of the progress thread.
struct Polling {
  int64_t interval_ns = 1000;  // while the operation waits
  int most_repeats = 64;  // of starts and of state 20, in one operation; later ones are left out
};

// A call of the profiler for a step.
struct StepCall {
  enum class Kind : uint8_t { kStart, kRecord, kStop };
  Kind kind;
  int step;
  EventState state = {};  // of a record
};

class ProxyOperation {
 public:
  // `bytes` is the size of the whole operation, in steps of `chunk_bytes`.
  ProxyOperation(bool is_send, std::vector<StepTimes> times, int overlap, const Polling& polling,
                 uint64_t bytes, uint64_t chunk_bytes);

  // One call of the progress function at `now_ns`, which does at most one thing. Appends the calls
  // of the profiler. Returns when it is called again; kNever: the operation is done, or stuck.
  int64_t Progress(int64_t now_ns, std::vector<StepCall>& calls);
  bool IsDone() const { return done_ == marks_.size(); }
  // Goes through all calls without a profiler. Returns the end, or kNever if it gets stuck.
  int64_t RunUnseen(int64_t begin_ns);

  bool is_send() const { return is_send_; }
  int steps() const { return static_cast<int>(marks_.size()); }
  const std::vector<StepMarks>& marks() const { return marks_; }
  // As the thread would see it if it were never late; kNever if the operation does not end.
  int64_t EndNs() const;

 private:
  bool ProgressSend(int64_t now_ns, std::vector<StepCall>& calls);
  bool ProgressReceive(int64_t now_ns, std::vector<StepCall>& calls);
  bool HasRoom() const { return posted_ < marks_.size() && posted_ < done_ + overlap_; }
  // Appends the call unless it is one of too many repeats. Returns whether it may be repeated.
  void Repeat(const StepCall& call, std::vector<StepCall>& calls);
  int64_t NextChangeNs() const;
  bool Repeats(int64_t now_ns) const;

  const bool is_send_;
  const std::vector<StepTimes> times_;
  const size_t overlap_;
  const Polling polling_;
  std::vector<StepMarks> marks_;
  // Steps that have come so far; NCCL's names (2.30.7 src/transport/net.cc).
  size_t posted_ = 0;
  size_t received_ = 0;
  size_t transmitted_ = 0;
  size_t done_ = 0;
  int repeats_ = 0;
};

}  // namespace nccl_exporter::sim
