// SPDX-License-Identifier: Apache-2.0
// Queue of events with the thread that delivers them when they are due: NCCL's proxy progress
// thread, its profiler thread, or CUDA's host function thread. Any thread may post.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "simulator/device/clock_mode.h"

namespace nccl_exporter::sim {

// Played as fast as it goes, calling thread and delivering threads are held together in the job's
// time: a calling thread waits for what was due before it goes on (WaitDelivered), and a delivering
// thread goes ahead of the horizon, which is where the calling thread is, by no more than
// `most_ahead_ns`. Within that they run at once.
//
// The time of a delivering thread never goes back: an action that is posted after a later one has
// run runs at the time that the thread has reached.
class EventQueue {
 public:
  // An action adds the time that it takes to `now_ns`.
  using Action = std::function<void(int64_t& now_ns)>;
  // As far as real threads see each other ahead when one of them is preempted.
  static constexpr int64_t kMostAheadNs = 200000;

  // `prepare` runs first on the new thread.
  EventQueue(const ClockMode& clock_mode, std::function<void()> prepare,
             int64_t most_ahead_ns = kMostAheadNs);
  // Delivers what is left, without waiting for its time.
  ~EventQueue();

  // Actions run in the order of their times, equal ones in the order of posting.
  void Post(int64_t due_ns, Action action);
  void SetHorizon(int64_t job_ns);
  // Until everything due by then is delivered.
  void WaitDelivered(int64_t until_ns);
  // Until nothing is left. Returns when the last event was delivered, or `now_ns` if that is later.
  int64_t Drain(int64_t now_ns);

 private:
  struct Item {
    int64_t due_ns;
    uint64_t number;
    Action action;
  };
  struct IsLater {
    bool operator()(const Item& a, const Item& b) const {
      return a.due_ns != b.due_ns ? a.due_ns > b.due_ns : a.number > b.number;
    }
  };

  void Run();
  bool WaitUntilDue(std::unique_lock<std::mutex>& lock);

  const ClockMode& clock_mode_;
  const std::function<void()> prepare_;
  const int64_t most_ahead_ns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Item, std::vector<Item>, IsLater> items_;
  uint64_t posted_ = 0;
  int64_t horizon_ns_ = 0;
  int64_t delivering_ns_ = INT64_MAX;  // due time of the action that runs
  int64_t reached_ns_ = INT64_MIN;     // time of the thread after the latest action
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace nccl_exporter::sim
