// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/daemon_watch.h"

#include <utility>

namespace nccl_exporter::exporter {

DaemonWatch::DaemonWatch(AskDaemon ask) : ask_(std::move(ask)) { Ask(); }

void DaemonWatch::Ask() {
  asked_at_ = std::chrono::steady_clock::now();
  question_ = std::async(std::launch::async, ask_);
}

DaemonJudgement DaemonWatch::Latest() {
  const auto patience = std::exchange(patience_, std::chrono::milliseconds(0));
  if (question_.valid() && question_.wait_for(patience) == std::future_status::ready)
    latest_ = question_.get();
  if (!question_.valid() && std::chrono::steady_clock::now() >= asked_at_ + kDaemonInterval) Ask();
  return latest_;
}

}  // namespace nccl_exporter::exporter
