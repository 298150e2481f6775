// SPDX-License-Identifier: Apache-2.0
// Keeps the daemon's judge informed: a thread that takes a snapshot every step of the history.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "exporter/findings/node_judge.h"
#include "exporter/node/snapshot_source.h"

namespace nccl_exporter::exporter {

class NodeWatch {
 public:
  // Begins at once. All durations, the history's steps as well, are divided by `time_scale`. A
  // snapshot that fails is logged, and leaves its step out. `snapshots` outlives this object.
  explicit NodeWatch(SnapshotSource& snapshots, double time_scale = 1);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  // Calls `read` with the judge, which does not change meanwhile. Any thread.
  void Read(const std::function<void(const NodeJudge&)>& read) const;

 private:
  void Run();
  void Record();

  SnapshotSource& snapshots_;
  mutable std::mutex mutex_;  // guards judge_ and is_stopping_
  std::condition_variable stop_;
  bool is_stopping_ = false;
  const std::chrono::steady_clock::duration step_;
  NodeJudge judge_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace nccl_exporter::exporter
