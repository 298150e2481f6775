// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/slot_directory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "collector/testing/memory_source.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

constexpr uint64_t kUid = 1000;
constexpr size_t kSlots = 5;

// Three slots that were claimed, one that was not, and the overflow slot.
SegmentWriterV1 Segment() {
  SegmentWriterV1 writer(kSlots);
  writer.Put(ProcessV1{.host_name = "node"});
  writer.Put(0, CommunicatorV1{.generation = 3});
  writer.Put(1, CommunicatorV1{.state = 3, .timing_source = 0, .closed_monotonic_ns = 77});
  writer.Put(2, CommunicatorV1{.state = 1, .has_identity = 0});
  writer.Publish();
  return writer;
}

SlotDirectory DirectoryOf(const SegmentWriterV1& writer, uint64_t* slots_left = nullptr) {
  return ReadSlotDirectory(MemorySource(writer.bytes(), kUid), slots_left);
}

TEST(SlotDirectoryTest, HasTheSlotsThatWereEverClaimed) {
  const SlotDirectory directory = DirectoryOf(Segment());
  ASSERT_TRUE(directory.process);
  EXPECT_FALSE(directory.fault);
  EXPECT_EQ(directory.process->host_name, "node");
  EXPECT_EQ(directory.process->uid, kUid);
  EXPECT_EQ(directory.overflow_slot(), kSlots - 1);
  ASSERT_EQ(directory.heads.size(), 3u);
  EXPECT_EQ(directory.heads[0].state(), layout::SlotState::kLive);
  EXPECT_EQ(directory.heads[0].generation(), 3u);
  EXPECT_TRUE(directory.heads[0].has_identity);
  EXPECT_TRUE(directory.heads[0].has_kernel_times);
  EXPECT_EQ(directory.heads[1].state(), layout::SlotState::kClosed);
  EXPECT_EQ(directory.heads[1].closed_monotonic_ns, 77u);
  EXPECT_FALSE(directory.heads[1].has_kernel_times);
  EXPECT_EQ(directory.heads[2].state(), layout::SlotState::kClaimed);
  EXPECT_FALSE(directory.heads[2].has_identity);
}

TEST(SlotDirectoryTest, FindsSlotsWhereTheReaderDoes) {
  const SegmentWriterV1 writer = Segment();
  for (uint32_t slot = 0; slot < kSlots; ++slot)
    EXPECT_EQ(DirectoryOf(writer).OffsetOf(slot), writer.SlotAt(slot));
}

// Regression: the slots of one user were examined without a limit.
TEST(SlotDirectoryTest, LooksAtNoMoreSlotsThanAreLeft) {
  uint64_t left = 7;
  EXPECT_FALSE(DirectoryOf(Segment(), &left).lacked_slots);
  EXPECT_EQ(left, 3u) << "the slot that ends the walk is looked at as well";
  EXPECT_EQ(DirectoryOf(Segment(), &left).heads.size(), 3u);
  const SlotDirectory directory = DirectoryOf(Segment(), &left);
  EXPECT_TRUE(directory.lacked_slots);
  EXPECT_FALSE(directory.fault);
  EXPECT_EQ(directory.heads.size(), 0u);
  EXPECT_EQ(left, 0u);
}

TEST(SlotDirectoryTest, SaysWhyASegmentCannotBeRead) {
  SegmentWriterV1 writer = Segment();
  // The file was cut off between the two looks at its length and at its slots.
  class CutOff : public MemorySource {
   public:
    CutOff(std::span<const std::byte> bytes, uint64_t bytes_before)
        : MemorySource(bytes, kUid), bytes_before_(bytes_before) {}
    uint64_t Size() const override { return bytes_before_; }

   private:
    const uint64_t bytes_before_;
  };
  const std::span<const std::byte> bytes = writer.bytes();
  const SlotDirectory cut_off =
      ReadSlotDirectory(CutOff(bytes.first(writer.SlotAt(1)), bytes.size()), nullptr);
  ASSERT_TRUE(cut_off.fault);
  EXPECT_EQ(cut_off.fault->error, SegmentError::kTruncated);
  EXPECT_EQ(cut_off.heads.size(), 1u);
  writer.PutWord(0, 0);
  const SlotDirectory starting = DirectoryOf(writer);
  EXPECT_FALSE(starting.fault);
  EXPECT_FALSE(starting.process);
}

}  // namespace
}  // namespace nccl_exporter::collector
