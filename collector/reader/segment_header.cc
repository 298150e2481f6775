// SPDX-License-Identifier: Apache-2.0
// Validates headers: nothing in them is used before it has passed here.
#include "collector/reader/segment_header.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "collector/reader/text_field.h"

namespace nccl_exporter {
namespace {

SegmentFault Fault(SegmentError error, std::string detail) { return {.error = error, .detail = std::move(detail)}; }

std::string VersionText(uint64_t version) {
  return std::to_string(version >> 32) + "." + std::to_string(version & 0xffffffff);
}

std::optional<SegmentFault> FindGeometryFault(const layout::SegmentHeader& header, uint64_t file_bytes) {
  const auto fault = [](const char* field, uint64_t value) {
    return Fault(SegmentError::kBadGeometry, std::string(field) + " is " + std::to_string(value));
  };
  if (header.header_bytes < sizeof(layout::SegmentHeader) || header.header_bytes > kHeaderLimitBytes ||
      header.header_bytes % sizeof(uint64_t) != 0) {
    return fault("header_bytes", header.header_bytes);
  }
  if (header.slot_bytes < sizeof(layout::CommunicatorSlot) || header.slot_bytes > layout::kSlotLimitBytes ||
      header.slot_bytes % sizeof(uint64_t) != 0) {
    return fault("slot_bytes", header.slot_bytes);
  }
  if (header.slot_count < 1 || header.slot_count > layout::kMaxSlots) return fault("slot_count", header.slot_count);
  if (header.file_bytes != header.header_bytes + header.slot_count * header.slot_bytes) {
    return fault("file_bytes", header.file_bytes);
  }
  if (header.identity_count > layout::kIdentityPairs) return fault("identity_count", header.identity_count);
  if (file_bytes < header.file_bytes) {
    return Fault(SegmentError::kTruncated,
                 "the file has " + std::to_string(file_bytes) + " of " + std::to_string(header.file_bytes) + " bytes");
  }
  return std::nullopt;
}

}  // namespace

std::optional<SegmentFault> FindFault(const layout::SegmentHeader& header, uint64_t copied_bytes, uint64_t file_bytes) {
  if (copied_bytes < offsetof(layout::SegmentHeader, header_bytes)) {
    return Fault(SegmentError::kTruncated, "the file has " + std::to_string(file_bytes) + " bytes");
  }
  if (header.magic != layout::kMagic) return Fault(SegmentError::kBadMagic, "not a segment of nccl-exporter");
  const uint64_t version = header.version.load(std::memory_order_relaxed);
  if (version >> 32 != layout::kMajor) {
    return Fault(SegmentError::kUnknownMajor,
                 "written in layout " + VersionText(version) + ", this reader knows " + VersionText(layout::kVersion));
  }
  if (copied_bytes < sizeof(header)) {
    return Fault(SegmentError::kTruncated,
                 "the file ends in its header, after " + std::to_string(file_bytes) + " bytes");
  }
  return FindGeometryFault(header, file_bytes);
}

ProcessSnapshot DescribeProcess(const layout::SegmentHeader& header, uint64_t owner_uid) {
  ProcessSnapshot process;
  process.pid = header.pid;
  process.uid = owner_uid;
  process.host_name = TextOf(header.host_name);
  process.executable = TextOf(header.executable);
  process.plugin_version = TextOf(header.plugin_version);
  process.start_realtime_ns =
      static_cast<int64_t>(std::min<uint64_t>(header.start_realtime_ns, std::numeric_limits<int64_t>::max()));
  for (size_t i = 0; i < header.identity_count; ++i) {
    std::string key = TextOf(header.identity[i].key);
    const auto same_key = [&](const auto& pair) { return pair.first == key; };
    if (key.empty() || std::ranges::any_of(process.identity, same_key)) continue;
    process.identity.emplace_back(std::move(key), TextOf(header.identity[i].value));
  }
  process.rank_numbers_process = header.rank_numbers_process.load(std::memory_order_relaxed) != 0;
  for (size_t i = 0; i < process.losses.size(); ++i) {
    process.losses[i] = header.losses[i].load(std::memory_order_relaxed);
  }
  return process;
}

}  // namespace nccl_exporter
