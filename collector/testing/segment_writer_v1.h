// SPDX-License-Identifier: Apache-2.0
// SegmentWriterV1, which writes segments of layout 1.0 by literal byte offsets, for tests. It is
// independent of shm_layout.h and stays unchanged: every reader of major 1 must read its segments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nccl_exporter::collector {

struct ProcessV1 {
  uint64_t pid = 0;
  uint64_t uid = 0;
  uint64_t start_realtime_ns = 0;
  uint64_t start_monotonic_ns = 0;
  uint64_t retention_ns = 0;
  std::string plugin_version{};
  std::string host_name{};
  std::string executable{};
  std::vector<std::pair<std::string, std::string>> identity{};
  std::vector<uint64_t> losses{};
};

struct CommunicatorV1 {
  uint64_t state = 2;  // 1 claimed, 2 live, 3 closed
  uint64_t generation = 1;
  uint64_t id = 0;
  uint64_t ranks = 0;
  uint64_t rank = 0;
  uint64_t nodes = 0;
  uint64_t api_version = 0;
  uint64_t nccl_version = 0;
  uint64_t event_mask = 0;
  uint64_t timing_source = 1;  // kernel
  uint64_t timing_reason = 0;
  uint64_t gpu_index_plus_1 = 0;
  uint64_t created_realtime_ns = 0;
  uint64_t created_monotonic_ns = 0;
  uint64_t closed_monotonic_ns = 0;
  uint64_t has_identity = 1;
  std::string name{};
  std::string gpu_uuid{};
  std::string pci_bus_id{};
};

struct FunctionV1 {
  uint64_t calls = 0;
  uint64_t last_start_ns = 0;
  std::array<uint64_t, 6> operations{};
  std::array<uint64_t, 6> bytes{};
  std::array<uint64_t, 6> timed_operations{};
  std::array<uint64_t, 6> timed_bytes{};
  std::array<uint64_t, 6> busy_ns{};
  uint64_t completed = 0;
  uint64_t last_completion_ns = 0;
  uint64_t bandwidth_sum_kib = 0;
  std::vector<uint64_t> duration{};   // at most 242
  std::vector<uint64_t> bandwidth{};  // at most 178
};

// Histogram of one function and size class (1.3).
struct SizeHistogramV1 {
  uint64_t function = 0;
  uint64_t size_class = 0;
  std::vector<uint64_t> duration{};  // at most 242
};

struct InFlightV1 {
  uint64_t ticket = 0;
  uint64_t function = 0;
  uint64_t sequence = 0;
  uint64_t start_ns = 0;
  uint64_t bytes = 0;
  uint64_t parts_announced = 0;
  uint64_t parts_done = 0;
  uint64_t last_part_ns = 0;
  uint64_t peer_plus_1 = 0;
};

struct CompletionV1 {
  uint64_t ticket = 0;
  uint64_t function = 0;
  uint64_t sequence = 0;
  uint64_t call_ns = 0;
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
  uint64_t delivered_ns = 0;
  uint64_t bytes = 0;
  uint64_t members = 1;
};

class SegmentWriterV1 {
 public:
  static constexpr size_t kHeaderBytes = 8192;
  static constexpr size_t kSlotBytes = 110592;
  static constexpr size_t kSlotBytesOf13 = 131072;
  static constexpr size_t kFunctions = 11;
  static constexpr size_t kInFlightEntries = 512;
  static constexpr size_t kCompletionEntries = 512;

  // Offsets that tests break on purpose.
  static constexpr size_t kVersion = 0;
  static constexpr size_t kMagic = 8;
  static constexpr size_t kHeaderBytesField = 16;
  static constexpr size_t kSlotBytesField = 24;
  static constexpr size_t kSlotCountField = 32;
  static constexpr size_t kFileBytesField = 40;
  static constexpr size_t kIdentityCount = 80;
  static constexpr size_t kRankNumbersProcess = 768;  // 1.2
  static constexpr size_t kFirstCommunicator = 784;   // 1.7
  // Callbacks, nanoseconds, flags, and a name of 40 bytes (1.8).
  static constexpr size_t kChain = 792;
  static constexpr uint64_t kVersion1 = uint64_t{1} << 32;

  // A segment of `slots` slots, the last of which is the overflow slot. A later minor has larger
  // strides.
  explicit SegmentWriterV1(size_t slots, size_t header_bytes = kHeaderBytes,
                           size_t slot_bytes = kSlotBytes);

  void Put(const ProcessV1& process);  // everything but the version word
  void Put(size_t slot, const CommunicatorV1& communicator);
  void Put(size_t slot, size_t function, const FunctionV1& counts);
  void Put(size_t slot, size_t index, const SizeHistogramV1& histogram);  // needs kSlotBytesOf13
  void Put(size_t slot, const InFlightV1& operation);     // in the entry of its ticket
  void Put(size_t slot, const CompletionV1& completion);  // in the entry of its ticket
  void Publish() { PutWord(kVersion, kVersion1); }

  size_t SlotAt(size_t slot) const { return header_bytes_ + slot * slot_bytes_; }
  static constexpr size_t DriftCauseAt(size_t slot_at) { return slot_at + 368; }  // 1.2
  static constexpr size_t SizeHistogramAt(size_t slot_at, size_t index) {         // 1.3
    return slot_at + 108864 + index * 1984;
  }
  // A direction's words are its waits by state, bytes, operations. Its share is behind them (1.4).
  static constexpr size_t NetworkAt(size_t slot_at, size_t direction) {
    return slot_at + 130688 + direction * 48;
  }
  static constexpr size_t NetworkShareAt(size_t slot_at) { return slot_at + 130688 + 96; }
  // The words are global rank, local rank, both plus 1, and world size (1.7).
  static constexpr size_t RankNumbersAt(size_t slot_at) { return slot_at + 130816; }
  static constexpr size_t NetworkTimedBytesAt(size_t function_at) {
    return function_at + 16;
  }                                                                              // 1.6
  static constexpr size_t ProbationAt(size_t slot_at) { return slot_at + 376; }  // 1.2
  size_t FunctionAt(size_t slot, size_t function) const;
  size_t InFlightAt(size_t slot, size_t entry) const;
  size_t CompletionAt(size_t slot, size_t entry) const;
  void PutWord(size_t offset, uint64_t value);
  void PutText(size_t offset, size_t field_bytes, std::string_view text);

  const std::vector<std::byte>& bytes() const { return bytes_; }
  // Makes the file, or changes it in place. Pages of zeros are left out, as in a sparse file.
  void WriteTo(const std::string& path) const;

 private:
  const size_t header_bytes_;
  const size_t slot_bytes_;
  std::vector<std::byte> bytes_{};
};

}  // namespace nccl_exporter::collector
