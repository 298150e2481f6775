// SPDX-License-Identifier: Apache-2.0
// One look at each segment of the node: what a snapshot and the comparison of arrivals are both
// made of.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "collector/node_snapshot.h"
#include "collector/reader/slot_directory.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// Owns its file together with all who read it: the file stays open for as long as one of them wants
// it.
struct SegmentLook {
  std::shared_ptr<const SegmentFile> file;
  bool is_alive = false;        // whether its writer lives
  int64_t clock_offset_ns = 0;  // see ProcessSnapshot
  SlotDirectory slots;          // of a live one: a dead one's slots do not change
};

// Every segment that is followed.
using SegmentLooks = std::map<FileKey, SegmentLook>;

}  // namespace nccl_exporter::collector
