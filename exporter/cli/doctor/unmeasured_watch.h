// SPDX-License-Identifier: Apache-2.0
// UnmeasuredWatch, a thread that counts processes with NCCL and a GPU that have no segment.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "exporter/cli/doctor/gpu_processes.h"

namespace nccl_exporter::exporter {

class UnmeasuredWatch {
 public:
  using OnCount = std::function<void(std::optional<uint64_t>)>;

  // Counts once in `interval` and calls `on_count` on its own thread. Nobody waits for that thread:
  // a read of /proc/PID/maps lasts as long as something holds that process's memory.
  UnmeasuredWatch(std::string proc, std::chrono::nanoseconds interval, OnCount on_count)
      : state_(std::make_shared<State>()) {
    std::thread([state = state_, proc = std::move(proc), interval,
                 on_count = std::move(on_count)] {
      while (true) {
        const std::optional<uint64_t> count = UnmeasuredProcesses(GpuProcessesIn(proc));
        std::unique_lock lock(state->mutex);
        if (state->is_stopping) return;
        on_count(count);
        if (state->stop.wait_for(lock, interval, [&] { return state->is_stopping; })) return;
      }
    }).detach();
  }
  // `on_count` is not called from then on.
  ~UnmeasuredWatch() {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopping = true;
    state_->stop.notify_all();
  }
  UnmeasuredWatch(const UnmeasuredWatch&) = delete;
  UnmeasuredWatch& operator=(const UnmeasuredWatch&) = delete;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable stop;
    bool is_stopping = false;
  };
  std::shared_ptr<State> state_;
};

}  // namespace nccl_exporter::exporter
