// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a flag. The signals are blocked and waited for, so that they interrupt
// nothing of a plugin's.
#pragma once

#include <signal.h>

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

inline sigset_t BothSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

inline void BlockStopSignals() {
  const sigset_t signals = BothSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

inline StopSignals::StopSignals() {
  thread_ = std::thread([this] {
    const sigset_t signals = BothSignals();
    while (true) {
      int signal = 0;
      sigwait(&signals, &signal);
      if (is_ending_) return;
      asked_ = true;
    }
  });
}

inline StopSignals::~StopSignals() {
  is_ending_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

}  // namespace nccl_exporter::sim
