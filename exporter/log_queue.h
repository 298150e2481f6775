// SPDX-License-Identifier: Apache-2.0
// LogQueue, the lines of the log on their way to a descriptor, which a thread of its own writes.
// Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace nccl_exporter::exporter {

// Lines that wait to be written, in bytes: more than a thousand lines. Further ones are dropped
// while the reader of the log (a container runtime, journald, a terminal) takes nothing.
inline constexpr size_t kLogQueueBytes = size_t{256} << 10;

// A write that lasts longer has no reader: the daemon is then not ready.
inline constexpr std::chrono::seconds kLogBlockedLimit{10};

// Time that the end of the daemon waits for its last lines.
inline constexpr std::chrono::seconds kLogFlushLimit{1};

class LogQueue {
 public:
  using Clock = std::chrono::steady_clock;

  // Does not own the descriptor, which may be blocking or not.
  explicit LogQueue(int descriptor, size_t limit_bytes = kLogQueueBytes);
  // Waits up to kLogFlushLimit for lines that are not written. Its thread ends later, if the
  // descriptor blocks.
  ~LogQueue();
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  // Never waits for the reader of the log. False if there is no room.
  bool Add(std::string_view line);

  // Lines that were not written.
  void CountDropped();
  uint64_t dropped() const;

  // Whether a write has been under way for kLogBlockedLimit.
  bool IsBlocked(Clock::time_point now) const;

  // Whether everything was written within the limit.
  bool Flush(std::chrono::milliseconds limit);

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // its thread's too, which a blocked write may keep
};

}  // namespace nccl_exporter::exporter
