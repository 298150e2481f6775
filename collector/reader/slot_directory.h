// SPDX-License-Identifier: Apache-2.0
// SlotDirectory, the header of a segment and the heads of its slots. One walk serves all readers of
// one snapshot. For the collector's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "collector/reader/segment_source.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {

struct SegmentFault {
  SegmentError error = SegmentError::kReadFailed;
  std::string detail;  // for messages
};

// The first fields of a slot. The state is of one moment. The others may be of the next generation,
// if the slot was claimed again during the copy. A reader that needs them together reads the state
// once more.
struct SlotHead {
  uint64_t state_word = 0;
  uint64_t communicator_id = 0;
  uint64_t ranks = 0;
  uint64_t rank = 0;
  uint64_t api_version = 0;
  uint64_t created_monotonic_ns = 0;
  uint64_t closed_monotonic_ns = 0;
  bool has_identity = false;
  bool has_kernel_times = false;

  layout::SlotState state() const { return layout::StateOf(state_word); }
  uint64_t generation() const { return layout::GenerationOf(state_word); }
};

struct SlotDirectory {
  std::optional<ProcessSnapshot> process;  // from the header, without communicators
  // Fault of the header or of a slot; if there is neither fault nor process, the writer is still
  // starting.
  std::optional<SegmentFault> fault;
  bool lacked_slots = false;  // `slots_left` was used up: `heads` ends before the last slot

  uint32_t minor = 0;                 // of the writer's layout
  bool rank_numbers_process = false;  // see layout::SegmentHeader
  uint64_t header_bytes = 0;
  uint64_t slot_bytes = 0;
  uint32_t slot_count = 0;  // with the overflow slot, which is the last
  // From the first slot to the last that was ever claimed, without the overflow slot.
  std::vector<SlotHead> heads;

  uint64_t OffsetOf(uint32_t slot) const { return header_bytes + slot * slot_bytes; }
  uint32_t overflow_slot() const { return slot_count - 1; }
};

// Reads the head of one slot; nothing if it cannot be read, with the reason in `fault`.
std::optional<SlotHead> ReadSlotHead(const SegmentSource& source, uint64_t offset,
                                     std::optional<SegmentFault>& fault);

// `slots_left`: the number of slots that may be examined, counted down; null: no limit. Slots
// beyond it are left out.
SlotDirectory ReadSlotDirectory(const SegmentSource& source, uint64_t* slots_left);

// Fills `into`, or returns the reason why it could not.
std::optional<SegmentFault> CopyAll(const SegmentSource& source, uint64_t offset,
                                    std::span<std::byte> into);

}  // namespace nccl_exporter::collector
