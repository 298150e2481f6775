// SPDX-License-Identifier: Apache-2.0
// SegmentSource, the bytes of a segment: in a file, or in memory for tests and fuzzers.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

// Bytes in memory, for tests and fuzzers.
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

}  // namespace nccl_exporter::collector
