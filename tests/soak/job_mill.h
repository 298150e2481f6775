// SPDX-License-Identifier: Apache-2.0
// Simulated jobs that begin and end all the time, in turn of every kind: layouts, API versions,
// communicators that are made again, orderly ends, ends without finalizing, and kills.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "tests/soak/findings.h"

namespace nccl_exporter::soak {

// Number of jobs that live at a time.
inline constexpr size_t kJobsAtATime = 3;

// One thread.
class JobMill {
 public:
  JobMill(const std::string& segment_directory, double retention_seconds, Findings* findings);

  // Starts jobs where some have ended, and kills those whose time has come. To be called about once
  // a second.
  void Turn();
  // Lets the last ones end by SIGKILL.
  void StopAll();

  uint64_t started() const { return started_; }
  uint64_t killed() const { return killed_; }

 private:
  struct Job {
    std::unique_ptr<exporter::ChildProcess> process;
    std::string name;
    double kill_at_seconds = 0;  // 0: not at all
    bool is_killed = false;
  };

  void Start(Job& job);
  void End(Job& job);
  void Kill(Job& job);

  const std::string segment_directory_;
  const double retention_seconds_;
  Findings* const findings_;
  collector::ScratchDirectory truths_;
  std::mt19937 random_;  // always the same jobs
  std::vector<Job> jobs_;
  uint64_t started_ = 0;
  uint64_t killed_ = 0;
};

}  // namespace nccl_exporter::soak
