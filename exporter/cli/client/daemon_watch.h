// SPDX-License-Identifier: Apache-2.0
// DaemonWatch, the daemon's judgement for a screen: a thread asks, so that the screen never waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "exporter/cli/client/daemon_judgement.h"

namespace nccl_exporter::exporter {

// Between two questions. An answer may be 0.5 s old, and the daemon looks every 5 s.
inline constexpr std::chrono::seconds kDaemonInterval{2};
// A first screen is late by at most this much, so that it can show the daemon's judgement.
inline constexpr std::chrono::milliseconds kFirstScreenPatience{500};

class DaemonWatch {
 public:
  // Asks at once.
  explicit DaemonWatch(AskDaemon ask);
  // Waits for a question that is under way, at most kDaemonPatience.
  ~DaemonWatch();
  DaemonWatch(const DaemonWatch&) = delete;
  DaemonWatch& operator=(const DaemonWatch&) = delete;

  // The latest answer. Before the first one it waits for kFirstScreenPatience, once. Any thread.
  DaemonJudgement Latest();

 private:
  void Run();

  const AskDaemon ask_;
  std::mutex mutex_;  // guards all below but thread_
  std::condition_variable changed_;
  bool is_stopping_ = false;
  bool has_waited_ = false;
  std::optional<DaemonJudgement> latest_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace nccl_exporter::exporter
