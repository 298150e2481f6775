// SPDX-License-Identifier: Apache-2.0
#include "exporter/node/snapshot_source.h"

#include <utility>

namespace nccl_exporter::exporter {

SnapshotSource::SnapshotSource(TakeSnapshot take)
    : snapshots_([this, take = std::move(take)] {
        std::shared_ptr<const collector::NodeSnapshot> snapshot = take();
        log_.Observe(*snapshot);
        is_ready_ = true;
        return snapshot;
      }) {}

}  // namespace nccl_exporter::exporter
