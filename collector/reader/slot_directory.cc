// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/slot_directory.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "proto/data_quality.h"

namespace nccl_exporter {
namespace {

using layout::CommunicatorSlot;
using layout::SegmentHeader;

constexpr size_t kHeadWords = offsetof(CommunicatorSlot, has_identity) / sizeof(uint64_t) + 1;

// False if the writer is still starting or the header is no good. The version is looked at before the rest is copied:
// it is stored last, so that behind a version that is not 0 everything is there.
bool ReadHeader(const SegmentSource& source, SlotDirectory& directory) {
  const auto header = std::make_unique<SegmentHeader>();
  ssize_t copied = source.Read(0, std::as_writable_bytes(std::span(&header->version, 1)));
  if (copied >= 0 && header->version.load(std::memory_order_relaxed) == 0) return false;
  if (copied >= 0) copied = source.Read(0, std::as_writable_bytes(std::span(header.get(), 1)));
  if (copied < 0) {
    directory.fault = SegmentFault{SegmentError::kReadFailed, "in the header"};
  } else {
    directory.fault = FindFault(*header, static_cast<uint64_t>(copied), source.Size());
  }
  if (directory.fault) return false;
  directory.process = DescribeProcess(*header, source.OwnerUid());
  directory.header_bytes = header->header_bytes;
  directory.slot_bytes = header->slot_bytes;
  directory.slot_count = static_cast<uint32_t>(header->slot_count);
  return true;
}

}  // namespace

std::optional<SegmentFault> CopyAll(const SegmentSource& source, uint64_t offset, std::span<std::byte> into) {
  const ssize_t copied = source.Read(offset, into);
  if (copied == static_cast<ssize_t>(into.size())) return std::nullopt;
  const SegmentError error = copied < 0 ? SegmentError::kReadFailed : SegmentError::kTruncated;
  return SegmentFault{error, "at byte " + std::to_string(offset)};
}

std::optional<SlotHead> ReadSlotHead(const SegmentSource& source, uint64_t offset, std::optional<SegmentFault>& fault) {
  std::array<uint64_t, kHeadWords> words{};
  fault = CopyAll(source, offset, std::as_writable_bytes(std::span(words)));
  if (fault) return std::nullopt;
  const auto word = [&](size_t at) { return words[at / sizeof(uint64_t)]; };
  return SlotHead{.state_word = word(offsetof(CommunicatorSlot, state)),
                  .closed_monotonic_ns = word(offsetof(CommunicatorSlot, closed_monotonic_ns)),
                  .has_identity = word(offsetof(CommunicatorSlot, has_identity)) != 0,
                  .has_kernel_times =
                      word(offsetof(CommunicatorSlot, timing_source)) == static_cast<uint64_t>(TimingSource::kKernel)};
}

// The plugin claims slots from the first one on: behind one that was never claimed there are no others, but the
// overflow slot.
SlotDirectory ReadSlotDirectory(const SegmentSource& source, uint64_t* slots_left) {
  SlotDirectory directory;
  if (!ReadHeader(source, directory)) return directory;
  for (uint32_t slot = 0; slot < directory.overflow_slot(); ++slot) {
    directory.lacked_slots = slots_left != nullptr && *slots_left == 0;
    if (directory.lacked_slots) {
      directory.fault = SegmentFault{SegmentError::kTooManySegments, "the user has used too many slots"};
      return directory;
    }
    if (slots_left != nullptr) --*slots_left;
    const std::optional<SlotHead> head = ReadSlotHead(source, directory.OffsetOf(slot), directory.fault);
    if (!head || head->state() == layout::SlotState::kFree) return directory;
    directory.heads.push_back(*head);
  }
  return directory;
}

}  // namespace nccl_exporter
