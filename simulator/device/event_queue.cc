// SPDX-License-Identifier: Apache-2.0
#include "simulator/device/event_queue.h"

#include <algorithm>
#include <utility>

namespace nccl_exporter::sim {

EventQueue::EventQueue(const ClockMode& clock_mode, std::function<void()> prepare,
                       int64_t most_ahead_ns)
    : clock_mode_(clock_mode),
      prepare_(std::move(prepare)),
      most_ahead_ns_(most_ahead_ns),
      thread_([this] { Run(); }) {}

EventQueue::~EventQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EventQueue::Post(int64_t due_ns, Action action) {
  bool is_next;
  {
    const std::lock_guard lock(mutex_);
    is_next = items_.empty() || due_ns < items_.top().due_ns;
    items_.push({due_ns, posted_++, std::move(action)});
  }
  if (is_next) changed_.notify_all();  // nobody waits for a later one
}

void EventQueue::SetHorizon(int64_t job_ns) {
  {
    const std::lock_guard lock(mutex_);
    horizon_ns_ = job_ns;
  }
  changed_.notify_all();
}

void EventQueue::WaitDelivered(int64_t until_ns) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return delivering_ns_ > until_ns && (items_.empty() || items_.top().due_ns > until_ns);
  });
}

int64_t EventQueue::Drain(int64_t now_ns) {
  SetHorizon(INT64_MAX - most_ahead_ns_);
  WaitDelivered(INT64_MAX - 1);
  const std::lock_guard lock(mutex_);
  horizon_ns_ = std::max(now_ns, reached_ns_);
  return horizon_ns_;
}

// False when everything is delivered and the thread shall end.
bool EventQueue::WaitUntilDue(std::unique_lock<std::mutex>& lock) {
  while (true) {
    if (items_.empty()) {
      if (is_ending_) return false;
      changed_.wait(lock);
    } else if (is_ending_) {
      return true;
    } else if (items_.top().due_ns > horizon_ns_ + most_ahead_ns_) {
      changed_.wait(lock);
    } else {
      const auto moment = clock_mode_.Moment(items_.top().due_ns);
      if (clock_mode_.StopAsked() || std::chrono::steady_clock::now() >= moment) return true;
      changed_.wait_until(lock, moment);
    }
  }
}

void EventQueue::Run() {
  prepare_();
  std::unique_lock lock(mutex_);
  while (WaitUntilDue(lock)) {
    Item item = items_.top();
    items_.pop();
    delivering_ns_ = item.due_ns;
    int64_t now_ns = std::max(item.due_ns, reached_ns_);
    lock.unlock();
    item.action(now_ns);
    item.action = nullptr;  // before anybody learns that it is done
    lock.lock();
    reached_ns_ = now_ns;
    delivering_ns_ = INT64_MAX;
    changed_.notify_all();
  }
}

}  // namespace nccl_exporter::sim
