// SPDX-License-Identifier: Apache-2.0
#include "exporter/node/snapshot_source.h"

#include <utility>

namespace nccl_exporter {

SnapshotSource::SnapshotSource(TakeSnapshot take)
    : snapshots_([this, take = std::move(take)] {
        std::shared_ptr<const NodeSnapshot> snapshot = take();
        log_.Observe(*snapshot);
        is_ready_ = true;
        return snapshot;
      }) {}

}  // namespace nccl_exporter
