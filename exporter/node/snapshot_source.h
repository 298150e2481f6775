// SPDX-License-Identifier: Apache-2.0
// The daemon's one way to a snapshot of the node: for scrapes, the web UI, the history and the
// watchdog.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "collector/node_snapshot.h"
#include "exporter/node/shared_read.h"
#include "exporter/node/state_log.h"

namespace nccl_exporter::exporter {

// Safe to use from any thread. Callers share snapshots as SharedRead has it.
class SnapshotSource {
 public:
  using TakeSnapshot = std::function<std::shared_ptr<const collector::NodeSnapshot>()>;

  // `take` is called on the threads of those who take, on one at a time.
  explicit SnapshotSource(TakeSnapshot take);

  // A snapshot that began after the call. What has changed since the one before is logged. Throws
  // what `take` throws.
  std::shared_ptr<const collector::NodeSnapshot> Take() { return snapshots_.Get(); }

  // Whether one was taken.
  bool is_ready() const { return is_ready_; }

 private:
  StateLog log_;
  std::atomic<bool> is_ready_ = false;
  SharedRead<collector::NodeSnapshot> snapshots_;
};

inline SnapshotSource::SnapshotSource(TakeSnapshot take)
    : snapshots_([this, take = std::move(take)] {
        std::shared_ptr<const collector::NodeSnapshot> snapshot = take();
        log_.Observe(*snapshot);
        is_ready_ = true;
        return snapshot;
      }) {}

}  // namespace nccl_exporter::exporter
