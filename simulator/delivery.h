// SPDX-License-Identifier: Apache-2.0
// A thread that delivers events when they are due: NCCL's proxy progress thread, its profiler thread, CUDA's host
// function thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "simulator/pace.h"

namespace nccl_exporter::sim {

// Played as fast as it goes, calling thread and delivering threads are held together in the job's time: a calling
// thread waits for what was due before it goes on (WaitDelivered), and a delivering thread goes ahead of the horizon,
// which is where the calling thread is, by no more than kMostAheadNs. Within that they run at once.
class Delivery {
 public:
  using Action = std::function<void(int64_t due_ns)>;
  // As far as real threads see each other ahead when one of them is preempted.
  static constexpr int64_t kMostAheadNs = 200000;

  // `prepare` runs first on the new thread.
  Delivery(const Pace& pace, std::function<void()> prepare);
  // Delivers what is left, without waiting for its time.
  ~Delivery();

  // Actions run in the order of their times, equal ones in the order of posting.
  void Post(int64_t due_ns, Action action);
  void SetHorizon(int64_t job_ns);
  // Until everything due by then is delivered.
  void WaitDelivered(int64_t until_ns);
  // Until nothing is left. Returns when the last event was due, or `now_ns` if that is later.
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

  const Pace& pace_;
  const std::function<void()> prepare_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Item, std::vector<Item>, IsLater> items_;
  uint64_t posted_ = 0;
  int64_t horizon_ns_ = 0;
  int64_t delivering_ns_ = INT64_MAX;  // due time of the action that runs
  int64_t last_due_ns_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace nccl_exporter::sim
