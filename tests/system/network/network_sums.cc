// SPDX-License-Identifier: Apache-2.0
#include "tests/system/network/network_sums.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "proto/shm_layout.h"

namespace nccl_exporter {
namespace {

class SegmentFile {
 public:
  explicit SegmentFile(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  uint64_t Word(size_t at) const {
    uint64_t word = 0;
    EXPECT_LE(at + sizeof(word), bytes_.size());
    if (at + sizeof(word) <= bytes_.size()) std::memcpy(&word, bytes_.data() + at, sizeof(word));
    return word;
  }

 private:
  std::string bytes_;
};

void AddNetwork(const SegmentFile& file, size_t at, NetworkSums& sums) {
  using layout::NetworkDirectionBlock;
  for (size_t state = 0; state < sums.wait_ns.size(); ++state)
    sums.wait_ns[state] += file.Word(at + offsetof(NetworkDirectionBlock, wait_ns) + 8 * state);
  sums.bytes += file.Word(at + offsetof(NetworkDirectionBlock, bytes));
  sums.operations += file.Word(at + offsetof(NetworkDirectionBlock, operations));
}

void AddSlot(const SegmentFile& file, size_t at, CommunicatorSums& sums) {
  using layout::CommunicatorSlot;
  for (size_t i = 0; i < sums.network.size(); ++i) {
    AddNetwork(file,
               at + offsetof(CommunicatorSlot, network.directions) +
                   i * sizeof(layout::NetworkDirectionBlock),
               sums.network[i]);
  }
  for (size_t i = 0; i < sums.completed.size(); ++i) {
    const size_t block =
        at + offsetof(CommunicatorSlot, functions) + i * sizeof(layout::FunctionBlock);
    sums.completed[i] += file.Word(block + offsetof(layout::FunctionBlock, completed));
    sums.network_timed_bytes[i] +=
        file.Word(block + offsetof(layout::FunctionBlock, network_timed_bytes));
    for (size_t size = 0; size < kSizeClassCount; ++size) {
      sums.bytes[i] += file.Word(block + offsetof(layout::FunctionBlock, started.bytes) + 8 * size);
      sums.timed_operations[i] +=
          file.Word(block + offsetof(layout::FunctionBlock, timed.timed_operations) + 8 * size);
    }
  }
}

}  // namespace

SegmentSums ReadSegmentSums(const std::string& folder) {
  using layout::CommunicatorSlot;
  using layout::SegmentHeader;
  SegmentSums sums;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != layout::kFileSuffix) continue;
    const SegmentFile file(entry.path());
    for (size_t i = 0; i < sums.losses.size(); ++i)
      sums.losses[i] += file.Word(offsetof(SegmentHeader, losses) + 8 * i);
    const uint64_t slots = file.Word(offsetof(SegmentHeader, slot_count));
    for (uint64_t slot = 0; slot < slots; ++slot) {
      const size_t at = sizeof(SegmentHeader) + slot * sizeof(CommunicatorSlot);
      if (file.Word(at + offsetof(CommunicatorSlot, state)) == 0) continue;
      const std::string id =
          fmt::format("{:016x}", file.Word(at + offsetof(CommunicatorSlot, communicator_id)));
      const auto rank = static_cast<int>(file.Word(at + offsetof(CommunicatorSlot, rank)));
      CommunicatorSums& communicator = sums.communicators[{id, rank}];
      AddSlot(file, at, communicator);
    }
  }
  return sums;
}

}  // namespace nccl_exporter
