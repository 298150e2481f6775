// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/slot_directory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "collector/reader/text_field.h"
#include "proto/timing_source.h"

namespace nccl_exporter::collector {
namespace {

using layout::CommunicatorSlot;
using layout::SegmentHeader;

constexpr size_t kHeadWords = offsetof(CommunicatorSlot, has_identity) / sizeof(uint64_t) + 1;

// Maximum of header_bytes. A later minor may append to the header, but hardly more than this. With
// the limits in shm_layout.h it keeps every offset below 2^30, so that no sum of sizes overflows.
constexpr uint64_t kHeaderLimitBytes = 65536;

SegmentFault Fault(SegmentError error, std::string detail) {
  return {.error = error, .detail = std::move(detail)};
}

std::string VersionText(uint64_t version) {
  return std::to_string(version >> 32) + "." + std::to_string(version & 0xffffffff);
}

std::optional<SegmentFault> FindGeometryFault(const layout::SegmentHeader& header,
                                              uint64_t file_bytes) {
  const auto fault = [](const char* field, uint64_t value) {
    return Fault(SegmentError::kBadGeometry, std::string(field) + " is " + std::to_string(value));
  };
  if (header.header_bytes < sizeof(layout::SegmentHeader) ||
      header.header_bytes > kHeaderLimitBytes || header.header_bytes % sizeof(uint64_t) != 0) {
    return fault("header_bytes", header.header_bytes);
  }
  if (header.slot_bytes < layout::kSlotBytesBefore13 ||
      header.slot_bytes > layout::kSlotLimitBytes || header.slot_bytes % sizeof(uint64_t) != 0) {
    return fault("slot_bytes", header.slot_bytes);
  }
  if (header.slot_count < 1 || header.slot_count > layout::kMaxSlots)
    return fault("slot_count", header.slot_count);
  if (header.file_bytes != header.header_bytes + header.slot_count * header.slot_bytes) {
    return fault("file_bytes", header.file_bytes);
  }
  if (header.identity_count > layout::kIdentityPairs)
    return fault("identity_count", header.identity_count);
  if (file_bytes < header.file_bytes) {
    return Fault(SegmentError::kTruncated, "the file has " + std::to_string(file_bytes) + " of " +
                                               std::to_string(header.file_bytes) + " bytes");
  }
  return std::nullopt;
}

// The reason why a segment whose version is not 0 cannot be used. `copied_bytes` of `header` came
// from the file, the rest is zeros. No field of a header is used before it passed here.
std::optional<SegmentFault> FindFault(const layout::SegmentHeader& header, uint64_t copied_bytes,
                                      uint64_t file_bytes) {
  if (copied_bytes < offsetof(layout::SegmentHeader, header_bytes)) {
    return Fault(SegmentError::kTruncated, "the file has " + std::to_string(file_bytes) + " bytes");
  }
  if (header.magic != layout::kMagic)
    return Fault(SegmentError::kBadMagic, "not a segment of nccl-exporter");
  const uint64_t version = header.version.load(std::memory_order_relaxed);
  if (version >> 32 != layout::kMajor) {
    return Fault(SegmentError::kUnknownMajor, "written in layout " + VersionText(version) +
                                                  ", this reader knows " +
                                                  VersionText(layout::kVersion));
  }
  if (copied_bytes < sizeof(header)) {
    return Fault(SegmentError::kTruncated,
                 "the file ends in its header, after " + std::to_string(file_bytes) + " bytes");
  }
  return FindGeometryFault(header, file_bytes);
}

// The words are 0 before layout 1.8.
std::optional<ChainedPlugin> DescribeChain(const layout::ChainBlock& chain) {
  const uint64_t flags = chain.flags.load(std::memory_order_relaxed);
  if ((flags & layout::kChainOpen) == 0) return std::nullopt;
  return ChainedPlugin{.name = TextOf(chain.name),
                       .lacks_kernel_events = (flags & layout::kChainWithoutKernelEvents) != 0,
                       .is_over_budget = (flags & layout::kChainOverBudget) != 0};
}

// The process of a header without fault, with `communicators` left empty. Its user is the file's
// owner, which the kernel reports. The writer knows itself by the number of its own user namespace,
// and may write any.
ProcessSnapshot DescribeProcess(const layout::SegmentHeader& header, uint64_t owner_uid) {
  ProcessSnapshot process;
  process.pid = header.pid;
  process.uid = owner_uid;
  process.host_name = TextOf(header.host_name);
  process.executable = TextOf(header.executable);
  process.plugin_version = TextOf(header.plugin_version);
  const auto bounded = [](uint64_t ns) {
    return static_cast<int64_t>(std::min<uint64_t>(ns, std::numeric_limits<int64_t>::max()));
  };
  process.start_realtime_ns = bounded(header.start_realtime_ns);
  process.start_monotonic_ns = bounded(header.start_monotonic_ns);
  for (size_t i = 0; i < header.identity_count; ++i) {
    std::string key = TextOf(header.identity[i].key);
    const auto same_key = [&](const auto& pair) { return pair.first == key; };
    if (key.empty() || std::ranges::any_of(process.identity, same_key)) continue;
    process.identity.emplace_back(std::move(key), TextOf(header.identity[i].value));
  }
  process.first_communicator = header.first_communicator.load(std::memory_order_relaxed);
  for (size_t i = 0; i < process.losses.size(); ++i) {
    process.losses[i] = header.losses[i].load(std::memory_order_relaxed);
  }
  process.chained = DescribeChain(header.chain);
  if (process.chained) {
    process.chained_callbacks = header.chain.callbacks.load(std::memory_order_relaxed);
    process.chained_ns = header.chain.ns.load(std::memory_order_relaxed);
  }
  return process;
}

// False if the writer is still starting or the header cannot be used. The version is read before
// the rest is copied. The plugin stores it last, so if it is not 0, the rest of the header was
// written before.
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
  directory.minor = static_cast<uint32_t>(header->version.load(std::memory_order_relaxed));
  directory.rank_numbers_process =
      header->rank_numbers_process.load(std::memory_order_relaxed) != 0;
  directory.header_bytes = header->header_bytes;
  directory.slot_bytes = header->slot_bytes;
  directory.slot_count = static_cast<uint32_t>(header->slot_count);
  return true;
}

}  // namespace

std::optional<SegmentFault> CopyAll(const SegmentSource& source, uint64_t offset,
                                    std::span<std::byte> into) {
  const ssize_t copied = source.Read(offset, into);
  if (copied == static_cast<ssize_t>(into.size())) return std::nullopt;
  const SegmentError error = copied < 0 ? SegmentError::kReadFailed : SegmentError::kTruncated;
  return SegmentFault{error, "at byte " + std::to_string(offset)};
}

std::optional<SlotHead> ReadSlotHead(const SegmentSource& source, uint64_t offset,
                                     std::optional<SegmentFault>& fault) {
  std::array<uint64_t, kHeadWords> words{};
  fault = CopyAll(source, offset, std::as_writable_bytes(std::span(words)));
  if (fault) return std::nullopt;
  const auto word = [&](size_t at) { return words[at / sizeof(uint64_t)]; };
  return SlotHead{.state_word = word(offsetof(CommunicatorSlot, state)),
                  .communicator_id = word(offsetof(CommunicatorSlot, communicator_id)),
                  .ranks = word(offsetof(CommunicatorSlot, ranks)),
                  .rank = word(offsetof(CommunicatorSlot, rank)),
                  .api_version = word(offsetof(CommunicatorSlot, api_version)),
                  .created_monotonic_ns = word(offsetof(CommunicatorSlot, created_monotonic_ns)),
                  .closed_monotonic_ns = word(offsetof(CommunicatorSlot, closed_monotonic_ns)),
                  .has_identity = word(offsetof(CommunicatorSlot, has_identity)) != 0,
                  .has_kernel_times = word(offsetof(CommunicatorSlot, timing_source)) ==
                                      static_cast<uint64_t>(TimingSource::kKernel)};
}

// The plugin claims slots from the first one on. So behind a slot that was never claimed, only the
// overflow slot is used.
SlotDirectory ReadSlotDirectory(const SegmentSource& source, uint64_t* slots_left) {
  SlotDirectory directory;
  if (!ReadHeader(source, directory)) return directory;
  for (uint32_t slot = 0; slot < directory.overflow_slot(); ++slot) {
    directory.lacked_slots = slots_left != nullptr && *slots_left == 0;
    if (directory.lacked_slots) return directory;
    if (slots_left != nullptr) --*slots_left;
    const std::optional<SlotHead> head =
        ReadSlotHead(source, directory.OffsetOf(slot), directory.fault);
    if (!head || head->state() == layout::SlotState::kFree) return directory;
    directory.heads.push_back(*head);
  }
  return directory;
}

}  // namespace nccl_exporter::collector
