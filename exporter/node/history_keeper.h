// SPDX-License-Identifier: Apache-2.0
// Keeps the daemon's history: a thread that takes a snapshot every kHistoryStep.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "collector/node_snapshot.h"
#include "exporter/node/node_history.h"

namespace nccl_exporter {

class HistoryKeeper {
 public:
  using Snapshots = std::function<std::shared_ptr<const NodeSnapshot>()>;

  // Begins at once. A snapshot that fails is logged, and leaves its step out.
  explicit HistoryKeeper(Snapshots snapshots);
  ~HistoryKeeper();
  HistoryKeeper(const HistoryKeeper&) = delete;
  HistoryKeeper& operator=(const HistoryKeeper&) = delete;

  // Calls `read` with the history, which does not change meanwhile. Any thread.
  void Read(const std::function<void(const NodeHistory&)>& read) const;

 private:
  void Run();
  void Record();

  const Snapshots snapshots_;
  mutable std::mutex mutex_;  // guards history_ and is_stopping_
  std::condition_variable stop_;
  bool is_stopping_ = false;
  NodeHistory history_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace nccl_exporter
