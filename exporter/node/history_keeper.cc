// SPDX-License-Identifier: Apache-2.0
// The thread and its clock.
#include "exporter/node/history_keeper.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <memory>

namespace nccl_exporter::exporter {

HistoryKeeper::HistoryKeeper(SnapshotSource& snapshots)
    : snapshots_(snapshots), thread_(&HistoryKeeper::Run, this) {}

HistoryKeeper::~HistoryKeeper() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void HistoryKeeper::Read(const std::function<void(const NodeHistory&)>& read) const {
  const std::lock_guard lock(mutex_);
  read(history_);
}

void HistoryKeeper::Run() {
  auto next = std::chrono::steady_clock::now();
  while (true) {
    try {
      Record();
    } catch (const std::exception& error) {
      spdlog::error("a step of the history is missing: {}", error.what());
    }
    // After a pause of the machine, steps go on from now: those that were missed are one long one.
    next = std::max(next + kHistoryStep, std::chrono::steady_clock::now());
    std::unique_lock lock(mutex_);
    if (stop_.wait_until(lock, next, [this] { return is_stopping_; })) return;
  }
}

void HistoryKeeper::Record() {
  const std::shared_ptr<const collector::NodeSnapshot> node = snapshots_.Take();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::lock_guard lock(mutex_);
  history_.Record(*node, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace nccl_exporter::exporter
