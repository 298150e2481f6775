// SPDX-License-Identifier: Apache-2.0
// SegmentSource, the bytes of a segment: in a file, or in memory for tests and fuzzers.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace nccl_exporter::collector {

class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  virtual uint64_t Size() const = 0;
  virtual uint64_t OwnerUid() const = 0;
  // Copies the bytes from `offset` on. Returns their number: fewer than `into` has only at the end
  // of the file; -1 if reading failed. The words of one copy may have been read in any order. A
  // later copy has no word as it was before an earlier copy.
  virtual ssize_t Read(uint64_t offset, std::span<std::byte> into) const = 0;
};

}  // namespace nccl_exporter::collector
