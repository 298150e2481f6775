// SPDX-License-Identifier: Apache-2.0
// DaemonWatch, the daemon's judgement for a screen, which never waits for it. For one thread.
#pragma once

#include <chrono>
#include <future>

#include "exporter/cli/client/daemon_judgement.h"

namespace nccl_exporter::exporter {

// Between two questions. An answer may be 0.5 s old, and the daemon looks every 5 s.
inline constexpr std::chrono::seconds kDaemonInterval{2};
// A first screen is late by at most this much, so that it can show the daemon's judgement.
inline constexpr std::chrono::milliseconds kFirstScreenPatience{500};

// Its end waits for a question that is under way, at most kDaemonPatience.
class DaemonWatch {
 public:
  // Asks at once.
  explicit DaemonWatch(AskDaemon ask);

  // The latest answer. Before the first one it waits for kFirstScreenPatience, once.
  DaemonJudgement Latest();

 private:
  void Ask();

  const AskDaemon ask_;
  std::chrono::milliseconds patience_ = kFirstScreenPatience;
  std::chrono::steady_clock::time_point asked_at_;
  DaemonJudgement latest_{.judgement = {}, .why_not = "the daemon has not answered yet"};
  std::future<DaemonJudgement> question_;  // valid while one is under way; last: it uses `ask_`
};

}  // namespace nccl_exporter::exporter
