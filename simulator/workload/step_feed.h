// SPDX-License-Identifier: Apache-2.0
// Hands the steps of one timeline to the calling threads of a process, each at its own speed.
#pragma once

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "simulator/workload/timeline.h"

namespace nccl_exporter::sim {

class StepFeed {
 public:
  StepFeed(const Workload& workload, const TimelineOptions& options)
      : timeline_(workload, options),
        waiting_(static_cast<size_t>(options.last_thread - options.first_thread)) {}

  // The next step of the thread with that number in this process. Any thread may call.
  ThreadStep Next(size_t thread) {
    const std::lock_guard lock(mutex_);
    if (waiting_[thread].empty()) {
      std::vector<ThreadStep> steps = timeline_.Next();
      for (size_t i = 0; i < steps.size(); ++i) waiting_[i].push_back(std::move(steps[i]));
    }
    ThreadStep step = std::move(waiting_[thread].front());
    waiting_[thread].pop_front();
    return step;
  }

 private:
  std::mutex mutex_;
  Timeline timeline_;
  std::vector<std::deque<ThreadStep>> waiting_;
};

}  // namespace nccl_exporter::sim
