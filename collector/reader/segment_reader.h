// SPDX-License-Identifier: Apache-2.0
// SegmentRead, a ProcessSnapshot from the bytes of a segment. The reader copies, validates the copy
// and uses the copy. Whatever the bytes are, time and memory are bounded by the limits in
// shm_layout.h. For the collector's thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collector/node_snapshot.h"
#include "collector/reader/communicator_reader.h"
#include "collector/reader/moment.h"
#include "collector/reader/segment_source.h"
#include "collector/reader/slot_directory.h"

namespace nccl_exporter::collector {

// A time that is further in the future than this is of another clock. Operations go on while a
// snapshot is read, which takes seconds where the machine is overloaded.
inline constexpr int64_t kFutureNs = 10'000'000'000;

struct ReadTerms {
  Moment now;
  // Lead of the process's CLOCK_MONOTONIC over the reader's, in a time namespace.
  int64_t clock_offset_ns = 0;
  // Retention of finalized communicators.
  std::chrono::nanoseconds retention = std::chrono::nanoseconds::max();
  uint64_t communicator_limit = layout::kMaxSlots;  // see kMaxCommunicators; 40 us each to read
  uint64_t in_use_limit = 0;       // limit for those in use alone, where it is higher
  uint64_t* slots_left = nullptr;  // that may be examined, counted down; null: no limit
  // Whether FunctionSnapshot::duration_by_size is filled. It is a fifth of a slot more to copy, and
  // up to 21 KiB of memory for each communicator.
  bool splits_durations = false;
};

struct SegmentRead {
  std::optional<ProcessSnapshot> process;  // without name and liveness, which are not in the bytes
  // Why there is no `process`; if there is neither, the writer is still starting.
  std::optional<SegmentFault> fault;
  uint64_t changed_slots = 0;  // left out, because they were claimed again during the copy
  // That the communicators of `process` take, in communicators of the usual size.
  uint64_t room = 0;
  // With those left out, which may take as much as the largest of the segment that is known, each.
  uint64_t wanted_in_use = 0, wanted_finalized = 0;
  uint64_t copied_slots = 0;  // without the overflow slot, with those that gave no communicator
  uint64_t slots = 0;         // that were examined
  uint64_t header_bytes = 0, slot_bytes = 0;  // as SlotDirectory
  bool lacked_slots = false;                  // not all were, by ReadTerms::slots_left
  // CLOCK_MONOTONIC when the same bytes must be read again, because some of them will have another
  // meaning.
  uint64_t stale_at_ns = kNever;
  int64_t last_sign_of_life_realtime_ns = 0;  // the latest time in the bytes
  uint64_t ahead_ns = 0;  // distance of the latest time into the future, by CLOCK_MONOTONIC

  // The part of the room for communicators that this segment used.
  uint64_t Cost() const { return std::max(copied_slots, process ? room : 0); }
};

// Room that a communicator takes of the room for communicators.
uint64_t RoomOf(const CommunicatorSnapshot& communicator);

// Reads only what is needed. Of a free slot that is the head, so a sparse file costs little. Where
// there is not room for all communicators, those in use come first, the oldest first, then those
// that were finalized last.
SegmentRead ReadSegment(const SegmentSource& source, const ReadTerms& terms);

// Reads the slots that a walk has just found.
SegmentRead ReadSegment(const SegmentSource& source, SlotDirectory directory,
                        const ReadTerms& terms);

}  // namespace nccl_exporter::collector
