// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a flag. The signals are blocked and waited for, so that they interrupt
// nothing of a plugin's.
#pragma once

#include <atomic>
#include <thread>

namespace nccl_exporter::sim {

// In the calling thread, in all that it starts, and in programs that it becomes: until then a
// signal waits.
void BlockStopSignals();

// Takes the blocked signals while it lives.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& asked() const { return asked_; }

 private:
  std::atomic<bool> asked_ = false;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

}  // namespace nccl_exporter::sim
