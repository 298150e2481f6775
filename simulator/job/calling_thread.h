// SPDX-License-Identifier: Apache-2.0
// A thread of the user's program that calls NCCL for one rank, or for all ranks of its process at
// once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "simulator/device/clock_mode.h"
#include "simulator/device/rank.h"
#include "simulator/loader/profiler_plugin.h"
#include "simulator/nccl/communicator_set.h"
#include "simulator/nccl/group_events.h"
#include "simulator/nccl/prepared_plan.h"
#include "simulator/release/play_options.h"
#include "simulator/workload/thread_step.h"

namespace nccl_exporter::sim {

// A rank as a calling thread holds it.
struct CalledRank {
  Rank& rank;
  CommunicatorSet& communicators;
};

class CallingThread {
 public:
  CallingThread(const PlayOptions& options, ProfilerPlugin& plugin, const ClockMode& clock_mode,
                std::vector<CalledRank> ranks)
      : options_(options),
        plugin_(plugin),
        clock_mode_(clock_mode),
        ranks_(std::move(ranks)),
        events_(options_.release, plugin) {}

  // Leaves off between two groups when the job is asked to stop. False: the thread hangs before the
  // step's end.
  bool Play(const ThreadStep& step);
  // Makes no call until then, while what was launched goes on.
  void GoOnTo(int64_t job_ns);
  // Only the first group, whose kernels never end; for a rank that dies in flight.
  void PlayHanging(const ThreadStep& step);
  // Until every event is delivered.
  void Drain();
  void Finalize();
  // A communicator's destruction would not have returned.
  bool HasHung() const;
  int64_t steps() const { return steps_; }
  // Steps that began behind the job's time (ClockMode::IsBehind).
  int64_t late_steps() const { return late_steps_; }

 private:
  using Plans = std::vector<PreparedPlan>;

  void StartStep(const ThreadStep& step);
  // `next`: the group that follows in the step, or null.
  void PlayGroup(const ThreadGroup& group, const ThreadGroup* next, bool never_completes);
  Plans MakeCalls(const ThreadGroup& group, bool is_captured);
  void Launch(const ThreadGroup& group, const ThreadGroup* next, Plans& plans,
              bool never_completes);
  void Capture(const ThreadGroup& group);
  void Replay(const ThreadGroup& group, Plans& plans);
  void LaunchOnHostThread(const ThreadGroup& group, const std::shared_ptr<Plans>& plans);
  CalledRank& Called(int global_rank);

  const PlayOptions& options_;
  ProfilerPlugin& plugin_;
  const ClockMode& clock_mode_;
  std::vector<CalledRank> ranks_;
  GroupEvents events_;
  int64_t now_ns_ = 0;
  int64_t steps_ = 0;
  int64_t late_steps_ = 0;
  std::map<int, Plans> graphs_;  // by the id of the captured group
};

}  // namespace nccl_exporter::sim
