// SPDX-License-Identifier: Apache-2.0
#include "collector/testing/segment_writer_v1.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <span>

#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {

SegmentWriterV1::SegmentWriterV1(size_t slots, size_t header_bytes, size_t slot_bytes)
    : header_bytes_(header_bytes),
      slot_bytes_(slot_bytes),
      bytes_(header_bytes + slots * slot_bytes) {
  PutText(kMagic, 8, "NCCLSEG1");
  PutWord(kHeaderBytesField, header_bytes);
  PutWord(kSlotBytesField, slot_bytes);
  PutWord(kSlotCountField, slots);
  PutWord(kFileBytesField, bytes_.size());
}

size_t SegmentWriterV1::FunctionAt(size_t slot, size_t function) const {
  return SlotAt(slot) + 384 + function * 3904;
}
size_t SegmentWriterV1::InFlightAt(size_t slot, size_t entry) const {
  return SlotAt(slot) + 43328 + entry * 64;
}
size_t SegmentWriterV1::CompletionAt(size_t slot, size_t entry) const {
  return SlotAt(slot) + 76096 + entry * 64;
}

void SegmentWriterV1::PutWord(size_t offset, uint64_t value) {
  for (size_t i = 0; i < 8; ++i) bytes_.at(offset + i) = static_cast<std::byte>(value >> (8 * i));
}

void SegmentWriterV1::PutText(size_t offset, size_t field_bytes, std::string_view text) {
  assert(text.size() <= field_bytes);
  const auto field = std::span(bytes_).subspan(offset, field_bytes);
  std::ranges::fill(field, std::byte{0});
  std::ranges::copy(std::as_bytes(std::span(text)), field.begin());
}

void SegmentWriterV1::Put(const ProcessV1& process) {
  PutWord(48, process.pid);
  PutWord(56, process.uid);
  PutWord(64, process.start_realtime_ns);
  PutWord(72, process.start_monotonic_ns);
  PutWord(kIdentityCount, process.identity.size());
  PutWord(88, process.retention_ns);
  PutText(96, 32, process.plugin_version);
  PutText(128, 64, process.host_name);
  PutText(192, 64, process.executable);
  for (size_t i = 0; i < process.losses.size(); ++i) PutWord(256 + 8 * i, process.losses[i]);
  for (size_t i = 0; i < process.identity.size(); ++i) {
    PutText(4096 + 128 * i, 32, process.identity[i].first);
    PutText(4096 + 128 * i + 32, 96, process.identity[i].second);
  }
}

void SegmentWriterV1::Put(size_t slot, const CommunicatorV1& communicator) {
  const std::array<uint64_t, 15> words{communicator.generation << 8 | communicator.state,
                                       communicator.id,
                                       communicator.ranks,
                                       communicator.rank,
                                       communicator.nodes,
                                       communicator.api_version,
                                       communicator.nccl_version,
                                       communicator.event_mask,
                                       communicator.timing_source,
                                       communicator.timing_reason,
                                       communicator.gpu_index_plus_1,
                                       communicator.created_realtime_ns,
                                       communicator.created_monotonic_ns,
                                       communicator.closed_monotonic_ns,
                                       communicator.has_identity};
  const size_t at = SlotAt(slot);
  for (size_t i = 0; i < words.size(); ++i) PutWord(at + 8 * i, words[i]);
  PutText(at + 128, 128, communicator.name);
  PutText(at + 256, 64, communicator.gpu_uuid);
  PutText(at + 320, 64, communicator.pci_bus_id);
}

void SegmentWriterV1::Put(size_t slot, size_t function, const FunctionV1& counts) {
  const size_t at = FunctionAt(slot, function);
  const auto put_all = [&](size_t offset, const auto& words) {
    for (size_t i = 0; i < words.size(); ++i) PutWord(at + offset + 8 * i, words[i]);
  };
  PutWord(at, counts.calls);
  PutWord(at + 8, counts.last_start_ns);
  put_all(64, counts.operations);
  put_all(128, counts.bytes);
  put_all(192, counts.timed_operations);
  put_all(256, counts.timed_bytes);
  put_all(320, counts.busy_ns);
  PutWord(at + 384, counts.completed);
  PutWord(at + 392, counts.last_completion_ns);
  PutWord(at + 400, counts.bandwidth_sum_kib);
  put_all(448, counts.duration);
  put_all(2432, counts.bandwidth);
}

void SegmentWriterV1::Put(size_t slot, size_t index, const SizeHistogramV1& histogram) {
  const size_t at = SizeHistogramAt(SlotAt(slot), index);
  PutWord(at, 65536 + histogram.function * 256 + histogram.size_class);
  for (size_t i = 0; i < histogram.duration.size(); ++i)
    PutWord(at + 48 + 8 * i, histogram.duration[i]);
}

void SegmentWriterV1::Put(size_t slot, const InFlightV1& operation) {
  const size_t at = InFlightAt(slot, (operation.ticket - 1) % kInFlightEntries);
  PutWord(at, operation.ticket);
  PutWord(at + 8, operation.function);
  PutWord(at + 16, operation.sequence);
  PutWord(at + 24, operation.start_ns);
  PutWord(at + 32, operation.bytes);
  PutWord(at + 40, operation.parts_announced << 32 | operation.parts_done);
  PutWord(at + 48, operation.last_part_ns);
  PutWord(at + 56, operation.peer_plus_1);
}

void SegmentWriterV1::Put(size_t slot, const CompletionV1& completion) {
  const size_t at = CompletionAt(slot, (completion.ticket - 1) % kCompletionEntries);
  PutWord(at, completion.ticket);
  PutWord(at + 8, completion.function << 56 | completion.sequence);
  PutWord(at + 16, completion.call_ns);
  PutWord(at + 24, completion.start_ns);
  PutWord(at + 32, completion.stop_ns);
  PutWord(at + 40, completion.delivered_ns);
  PutWord(at + 48, completion.bytes);
  PutWord(at + 56, completion.members);
}

void SegmentWriterV1::WriteTo(const std::string& path) const {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  struct stat status {};
  const bool is_new = ::fstat(file.number(), &status) == 0 && status.st_size == 0;
  if (::ftruncate(file.number(), static_cast<off_t>(bytes_.size())) != 0) std::abort();
  std::array<std::byte, 4096> before{};
  for (size_t offset = 0; offset < bytes_.size(); offset += before.size()) {
    const size_t length = std::min(before.size(), bytes_.size() - offset);
    const off_t at = static_cast<off_t>(offset);
    const std::byte* page = bytes_.data() + offset;
    if (!is_new &&
        ::pread(file.number(), before.data(), length, at) != static_cast<ssize_t>(length))
      std::abort();
    if (std::memcmp(page, before.data(), length) == 0) continue;
    if (::pwrite(file.number(), page, length, at) != static_cast<ssize_t>(length)) std::abort();
  }
}

}  // namespace nccl_exporter::collector
