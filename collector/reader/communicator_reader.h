// SPDX-License-Identifier: Apache-2.0
// One communicator slot, from a private copy: every word is checked or clamped before it becomes part of a snapshot.
#pragma once

#include <cstdint>
#include <limits>

#include "collector/node_snapshot.h"
#include "collector/reader/moment.h"
#include "proto/shm_layout.h"

namespace nccl_exporter {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

struct CommunicatorRead {
  CommunicatorSnapshot communicator;
  // CLOCK_MONOTONIC when the same bytes will mean something else: an operation will be complete by then. kNever: at no
  // time.
  uint64_t stale_at_ns = kNever;
};

// `slot`: a copy in which entries in flight that changed during the copy have ticket 0; its completions are not looked
// at.
CommunicatorRead DescribeCommunicator(const layout::CommunicatorSlot& slot, uint32_t slot_number, bool is_overflow,
                                      const Moment& now);

// Whether anything was ever counted in the slot.
bool HasCounts(const layout::CommunicatorSlot& slot);

}  // namespace nccl_exporter
