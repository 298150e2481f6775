// SPDX-License-Identifier: Apache-2.0
// CommunicatorRead, one communicator slot from a private copy. Every field is checked or clamped
// before it becomes part of a snapshot. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "collector/node_snapshot.h"
#include "collector/reader/moment.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

struct CommunicatorRead {
  CommunicatorSnapshot communicator;
  // CLOCK_MONOTONIC when the same bytes will have another meaning, because an operation will be
  // complete by then. kNever: at no time.
  uint64_t stale_at_ns = kNever;
  uint64_t latest_ns = 0;  // the latest time in the bytes, of CLOCK_MONOTONIC, also in the future
};

// `slot` is a copy. Entries in flight that changed during the copy must have ticket 0: an entry
// with a ticket is taken for whole. The ring of completions is not read.
CommunicatorRead DescribeCommunicator(const layout::CommunicatorSlot& slot, uint32_t slot_number,
                                      bool is_overflow, const Moment& now);

// Fills duration_by_size of the functions whose timed size classes all have a histogram, and makes
// `duration` their sum. `slot` is a copy with size_histograms, copied after its functions.
void SplitDurations(const layout::CommunicatorSlot& slot, CommunicatorSnapshot& communicator);

// Fills `network` and `network_bus_bytes` if the plugin times the communicator's network
// operations. `slot` is a copy with its network block, written in layout 1.`minor`.
void DescribeNetwork(const layout::CommunicatorSlot& slot, uint32_t minor,
                     CommunicatorSnapshot& communicator);

// Whether anything was ever counted in the slot.
bool HasCounts(const layout::CommunicatorSlot& slot);

}  // namespace nccl_exporter::collector
