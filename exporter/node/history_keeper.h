// SPDX-License-Identifier: Apache-2.0
// Keeps the daemon's history: a thread that takes a snapshot every kHistoryStep.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "exporter/node/node_history.h"
#include "exporter/node/snapshot_source.h"

namespace nccl_exporter::exporter {

class HistoryKeeper {
 public:
  // Begins at once. A snapshot that fails is logged, and leaves its step out. `snapshots` outlives
  // this object.
  explicit HistoryKeeper(SnapshotSource& snapshots);
  ~HistoryKeeper();
  HistoryKeeper(const HistoryKeeper&) = delete;
  HistoryKeeper& operator=(const HistoryKeeper&) = delete;

  // Calls `read` with the history, which does not change meanwhile. Any thread.
  void Read(const std::function<void(const NodeHistory&)>& read) const;

 private:
  void Run();
  void Record();

  SnapshotSource& snapshots_;
  mutable std::mutex mutex_;  // guards history_ and is_stopping_
  std::condition_variable stop_;
  bool is_stopping_ = false;
  NodeHistory history_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace nccl_exporter::exporter
