// SPDX-License-Identifier: Apache-2.0
// Bytes of a segment -> ProcessSnapshot. Copies, validates the copy, uses the copy; believes nothing. Time and memory
// are bounded by the limits in shm_layout.h, whatever the bytes say.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collector/node_snapshot.h"
#include "collector/reader/communicator_reader.h"
#include "collector/reader/moment.h"
#include "collector/reader/segment_header.h"
#include "collector/reader/segment_source.h"
#include "collector/reader/slot_directory.h"

namespace nccl_exporter {

struct ReadTerms {
  Moment now;
  std::chrono::nanoseconds retention = std::chrono::nanoseconds::max();  // of finalized communicators
  uint64_t communicator_limit = layout::kMaxSlots;                       // see kMaxCommunicators; 40 us each to read
  uint64_t* slots_left = nullptr;  // how many may be looked at, counted down; null: no limit
};

struct SegmentRead {
  std::optional<ProcessSnapshot> process;  // without name and liveness, which are not in the bytes
  std::optional<SegmentFault> fault;  // why there is no `process`; if there is neither, the writer is still starting
  uint64_t changed_slots = 0;         // left out, because they were claimed anew in the middle of the copy
  uint64_t room = 0;                  // that the communicators of `process` take, in communicators of the usual size
  uint64_t copied_slots = 0;          // besides the overflow slot, also where nothing came of it
  bool lacked_slots = false;          // the reason of `fault`: ReadTerms::slots_left
  // CLOCK_MONOTONIC when the same bytes will have to be read anew, because some of them mean something else by then.
  uint64_t stale_at_ns = kNever;
  int64_t last_sign_of_life_realtime_ns = 0;  // the latest time in the bytes

  // What it took of the room for communicators.
  uint64_t Cost() const { return std::max(copied_slots, process ? room : 0); }
};

// Never reads what is not needed: of a slot that is free its state alone, so that a sparse file costs little.
SegmentRead ReadSegment(const SegmentSource& source, const ReadTerms& terms);

// The same, of the slots that a walk has just found.
SegmentRead ReadSegment(const SegmentSource& source, SlotDirectory directory, const ReadTerms& terms);

// The same for bytes in memory: a pure function, to be fuzzed.
inline SegmentRead ParseSegment(std::span<const std::byte> bytes, uint64_t owner_uid, const ReadTerms& terms) {
  return ReadSegment(MemorySource(bytes, owner_uid), terms);
}

}  // namespace nccl_exporter
