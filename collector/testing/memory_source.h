// SPDX-License-Identifier: Apache-2.0
// MemorySource, the bytes of a segment in memory, and what is read of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "collector/reader/segment_reader.h"
#include "collector/reader/segment_source.h"

namespace nccl_exporter::collector {

class MemorySource : public SegmentSource {
 public:
  MemorySource(std::span<const std::byte> bytes, uint64_t owner_uid)
      : bytes_(bytes), owner_uid_(owner_uid) {}

  uint64_t Size() const override { return bytes_.size(); }
  uint64_t OwnerUid() const override { return owner_uid_; }
  ssize_t Read(uint64_t offset, std::span<std::byte> into) const override {
    if (offset >= bytes_.size()) return 0;
    const size_t length = std::min<size_t>(into.size(), bytes_.size() - offset);
    std::memcpy(into.data(), bytes_.data() + offset, length);
    return static_cast<ssize_t>(length);
  }

 private:
  const std::span<const std::byte> bytes_;
  const uint64_t owner_uid_;
};

// Reads a segment from bytes in memory.
inline SegmentRead ParseSegment(std::span<const std::byte> bytes, uint64_t owner_uid,
                                const ReadTerms& terms) {
  return ReadSegment(MemorySource(bytes, owner_uid), terms);
}

}  // namespace nccl_exporter::collector
