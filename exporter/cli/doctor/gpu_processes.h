// SPDX-License-Identifier: Apache-2.0
// Processes with NCCL and a GPU, and those of them that have no segment: by their mapped files.
// For any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace nccl_exporter::exporter {

struct GpuProcesses {
  uint64_t processes = 0;
  std::vector<std::string> without_segment = {};  // PIDs in this PID namespace
  // Whether there can be no others: false where this process may not read all of them, or is in a
  // PID namespace of its own.
  bool sees_all = false;

  // Nothing where others may be hidden.
  std::optional<uint64_t> Unmeasured() const {
    return sees_all ? std::optional<uint64_t>(without_segment.size()) : std::nullopt;
  }
};

// Whether a folder of /proc is that of a process.
inline bool IsPid(const std::string& name) {
  return name.find_first_not_of("0123456789") == std::string::npos;
}

// `proc` is /proc. A process that is under way to its end may hold the caller for as long as its
// memory is locked.
GpuProcesses GpuProcessesIn(const std::string& proc);

// A thread that counts unmeasured processes once in `interval` and calls `on_count`, not after the
// end of this object. Nobody waits for that thread: a read of /proc/PID/maps lasts as long as
// something holds that process's memory.
class UnmeasuredWatch {
 public:
  using OnCount = std::function<void(std::optional<uint64_t>)>;

  UnmeasuredWatch(std::string proc, std::chrono::nanoseconds interval, OnCount on_count);
  ~UnmeasuredWatch();
  UnmeasuredWatch(const UnmeasuredWatch&) = delete;
  UnmeasuredWatch& operator=(const UnmeasuredWatch&) = delete;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable stop;
    bool is_stopping = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace nccl_exporter::exporter
