// SPDX-License-Identifier: Apache-2.0
// One process of the job: its ranks, their threads, and the ground truth of what was played to the
// plugin.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulator/device/clock_mode.h"
#include "simulator/device/cuda_driver.h"
#include "simulator/device/rank.h"
#include "simulator/job/calling_thread.h"
#include "simulator/job/job_options.h"
#include "simulator/loader/profiler_plugin.h"
#include "simulator/nccl/communicator_set.h"
#include "simulator/truth/ground_truth.h"
#include "simulator/workload/timeline.h"

namespace nccl_exporter::sim {

class TrainingProcess {
 public:
  // `cuda` may be null. SetJobEpoch must have been called. All arguments outlive the process.
  TrainingProcess(const JobOptions& options, int process, const NcclLibrary& nccl,
                  const CudaDriver* cuda, const std::atomic<bool>& stop_asked);

  // Plays all steps, or up to the death of this process, or until it is asked to stop. A thread
  // that hangs is waited for until the job would have ended.
  void Run();
  // The rank that is to be killed is one of these, or was.
  bool IsKilled() const;
  // A destruction of a communicator would not have returned.
  bool HasHung() const;
  // One object for every rank.
  nlohmann::json Truth() const;

 private:
  void AddRank(int rank);
  void RunThread(size_t thread);
  bool PlayStep(CallingThread& calling, const ThreadStep& step);

  const JobOptions& options_;
  const int process_;
  const CudaDriver* const cuda_;
  const Workload workload_;
  const ClockMode clock_mode_;
  ProfilerPlugin plugin_;
  StepFeed feed_;
  // Ground truths by rank, in the order in which its communicators are made: the player reports to
  // them, and only the job reads them.
  std::deque<std::deque<GroundTruth>> truths_;
  std::vector<std::unique_ptr<CommunicatorSet>> communicators_;  // outlive the ranks' threads
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<CallingThread>> threads_;
  std::atomic<bool> was_killed_ = false;  // by an incident
};

// The shortest period of a step that was asked for and that the workload can keep.
int64_t StepPeriodNs(const JobOptions& options);

}  // namespace nccl_exporter::sim
