// SPDX-License-Identifier: Apache-2.0
// Times of all calls and kernels: takes all ranks of the cluster through the workload, step by
// step, and keeps what the threads of one process do. A rank that hangs, waits for one that does,
// or is gone has times of kNever. Pure: no clock, no communication, the same in every process.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "simulator/workload/conditions.h"
#include "simulator/workload/thread_step.h"
#include "simulator/workload/timeline.h"
#include "simulator/workload/workload.h"

namespace nccl_exporter::sim {

struct TimelineOptions {
  uint64_t seed = 1;
  int64_t period_ns = 0;   // a step starts no sooner than this after the one before
  int64_t compute_ns = 0;  // of a step, spread over its groups
  int first_thread = 0;    // threads to keep: [first_thread, last_thread)
  int last_thread = 0;
  std::vector<Incident> incidents = {};
};

class Timeline {
 public:
  // The workload must outlive the timeline.
  Timeline(const Workload& workload, const TimelineOptions& options);

  // The next step of each kept thread.
  std::vector<ThreadStep> Next();

 private:
  struct Rank {
    int64_t computed_ns = 0;            // the compute stream is busy until then
    std::map<int, int64_t> streams_ns;  // and the streams of the communicators
    int64_t IdleNs() const;
  };

  // Number of a group in a step, and number of the step's groups.
  struct GroupPosition {
    size_t group;
    size_t groups;
  };

  // Effects on an operation of the ranks that it waits for.
  struct Awaited {
    int64_t start_ns = 0;        // of the last kernel: data may move from then on
    int64_t leaves_ns = kNever;  // when the first of them is killed, or stopped between nodes
    double adapter_times = 1;    // the slowest adapter, between nodes
  };

  int64_t ReadyNs(int thread) const;
  int64_t StartThread(int thread);
  std::vector<ThreadGroup> Play(const Group& group, const GroupPosition& position);
  void Call(ThreadGroup& group, int thread, const GroupPosition& position);
  void Launch(ThreadGroup& group, int64_t& thread_ns) const;
  void StartKernel(Plan& plan, const GroupPosition& position);
  void StopKernels(const std::vector<Plan*>& plans, const GroupPosition& position,
                   bool overlaps_compute);
  Awaited AwaitedOf(const std::vector<Plan*>& plans, const Communicator& communicator) const;
  // Transfer of the launch, on which its network depends; a rank without a plan is null.
  std::shared_ptr<const LaunchTransfer> TransferOf(const std::vector<Plan*>& plan_of_rank,
                                                   const Communicator& communicator) const;
  // Whether the communicator is aborted in this step, in the group or one before it.
  bool IsAborted(const Communicator& communicator, const GroupPosition& position) const;
  void LeaveOutFailed(ThreadGroup& group, const GroupPosition& position) const;
  int64_t JitterNs(int64_t most_ns, int rank, uint64_t group, uint64_t purpose) const;

  const Workload& workload_;
  const TimelineOptions options_;
  std::vector<int64_t> threads_ns_;  // where each calling thread is
  std::vector<Rank> ranks_;
  Conditions conditions_;
  int64_t step_ = 0;
};

// The shortest period that this workload can keep up with, with a quarter to spare; found by
// playing a few steps.
int64_t SustainablePeriodNs(const Workload& workload, TimelineOptions options);

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
