// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/daemon_watch.h"

#include <utility>

namespace nccl_exporter::exporter {

DaemonWatch::DaemonWatch(AskDaemon ask) : ask_(std::move(ask)), thread_(&DaemonWatch::Run, this) {}

DaemonWatch::~DaemonWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

DaemonJudgement DaemonWatch::Latest() {
  std::unique_lock lock(mutex_);
  if (!std::exchange(has_waited_, true))
    changed_.wait_for(lock, kFirstScreenPatience, [this] { return latest_.has_value(); });
  return latest_.value_or(
      DaemonJudgement{.judgement = {}, .why_not = "the daemon has not answered yet"});
}

void DaemonWatch::Run() {
  auto next = std::chrono::steady_clock::now();
  while (true) {
    DaemonJudgement answer = ask_();
    next += kDaemonInterval;
    std::unique_lock lock(mutex_);
    latest_ = std::move(answer);
    changed_.notify_all();
    if (changed_.wait_until(lock, next, [this] { return is_stopping_; })) return;
  }
}

}  // namespace nccl_exporter::exporter
