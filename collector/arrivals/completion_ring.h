// SPDX-License-Identifier: Apache-2.0
// Reads on in one communicator's ring of recent completions, while the plugin writes it: what has
// come since the last look, in order, and how much was overwritten before it could be read.
//
// An entry is copied twice, and taken if both copies are the same and bear the ticket that is due.
// The writer sets a ticket to 0 before it touches the rest of the entry and stores the new one
// after it, and no ticket comes twice: so neither a half-written nor a half-overwritten entry can
// read the same in two copies, one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collector/reader/segment_source.h"
#include "proto/collective.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::collector {

// An operation that was timed, as the plugin reports it; any number is possible.
struct CompletedOperation {
  uint64_t ticket = 0;  // 1 + number of the completion on its communicator
  // As in the ring: names the operation on all ranks of its communicator.
  uint64_t function_and_sequence = 0;
  uint64_t call_ns = 0;   // CLOCK_MONOTONIC
  uint64_t start_ns = 0;  // in the clock of the timing source
  uint64_t stop_ns = 0;
  uint64_t delivered_ns = 0;  // CLOCK_MONOTONIC
  uint64_t bytes = 0;
  uint64_t members = 1;  // of its launch

  Function function() const {
    const uint64_t number = function_and_sequence >> 56;
    return number < kFunctionCount ? static_cast<Function>(number) : Function::kOther;
  }
  // An operation whose kernel stops before it starts, as only a damaged segment has, took no time.
  uint64_t DurationNs() const { return std::max(stop_ns, start_ns) - start_ns; }
  uint64_t sequence() const { return function_and_sequence & ((uint64_t{1} << 56) - 1); }
};

class CompletionRing {
 public:
  // `slot_offset`: of the communicator's slot in its segment. `clock_offset_ns`: see
  // ReadTerms; times of CLOCK_MONOTONIC are of ours.
  explicit CompletionRing(uint64_t slot_offset, int64_t clock_offset_ns = 0)
      : slot_offset_(slot_offset), clock_offset_ns_(static_cast<uint64_t>(clock_offset_ns)) {}

  // Whether anything was ever written to the ring. One system call.
  bool HasBegun(const SegmentSource& source) const;

  // Appends what has come since the last call; at the first one, all that the ring still holds.
  // Returns how many were lost in between: overwritten, or just being written when the ring was
  // found to have gone round. One system call if there is nothing new. What cannot be read is as
  // good as not there.
  uint64_t Read(const SegmentSource& source, std::vector<CompletedOperation>& operations);

  // As Read(). Nothing if the slot is not of that generation any more when the operations have been
  // read: then these may be of another communicator.
  std::optional<uint64_t> ReadOf(uint64_t generation, const SegmentSource& source,
                                 std::vector<CompletedOperation>& operations);

 private:
  using Entry = std::array<uint64_t, sizeof(layout::CompletionEntry) / sizeof(uint64_t)>;

  CompletedOperation OperationOf(const Entry& entry) const;
  bool Copy(const SegmentSource& source, size_t first, std::span<Entry> into) const;
  uint64_t TakeAll(const SegmentSource& source, std::vector<CompletedOperation>& operations);

  uint64_t slot_offset_;
  uint64_t clock_offset_ns_;
  uint64_t next_ = 0;  // ticket; 0: nothing was read yet
};

}  // namespace nccl_exporter::collector
