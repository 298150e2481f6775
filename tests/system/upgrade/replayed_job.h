// SPDX-License-Identifier: Apache-2.0
// A running job of a plugin of layout 1.2: recorded segments, counted up from zero in shared memory
// under a lock, as that plugin does. Its offsets are those of layout 1.2 and never change.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace nccl_exporter {

class ReplayedSegment;

class ReplayedJob {
 public:
  // Plays a job's recorded segments again and again, on a thread of its own, until Stop.
  ReplayedJob(const std::string& job, const std::string& directory);
  ReplayedJob(const ReplayedJob&) = delete;
  ReplayedJob& operator=(const ReplayedJob&) = delete;
  ~ReplayedJob();

  // Number of times that the whole job was counted.
  uint64_t rounds() const { return rounds_; }
  // Ends with the round. The segments stay locked: the processes live.
  void Stop();
  // The recorded ground truth times the rounds. Needs Stop.
  nlohmann::json Truth() const;

 private:
  void Play();

  const nlohmann::json recorded_truth_;
  std::vector<std::unique_ptr<ReplayedSegment>> segments_;
  std::atomic<uint64_t> rounds_ = 0;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace nccl_exporter
