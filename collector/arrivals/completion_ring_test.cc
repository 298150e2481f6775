// SPDX-License-Identifier: Apache-2.0
#include "collector/arrivals/completion_ring.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "collector/testing/memory_source.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

constexpr uint64_t kEntries = SegmentWriterV1::kCompletionEntries;

class CompletionRingTest : public testing::Test {
 protected:
  CompletionRingTest() : ring_(writer_.SlotAt(0)) {}

  // The tickets are also the sequence numbers.
  void Complete(uint64_t first, uint64_t last) {
    for (uint64_t ticket = first; ticket <= last; ++ticket) {
      writer_.Put(0,
                  CompletionV1{
                      .ticket = ticket, .function = 4, .sequence = ticket, .call_ns = ticket * 10});
    }
  }
  MemorySource Source() const { return {writer_.bytes(), 0}; }
  // Sequence numbers of what is read.
  std::vector<uint64_t> Read() {
    std::vector<CompletedOperation> operations;
    lost_ = ring_.Read(Source(), operations);
    std::vector<uint64_t> sequences;
    for (const CompletedOperation& operation : operations) {
      sequences.push_back(operation.function_and_sequence & 0xffffffff);
      EXPECT_EQ(operation.call_ns, 10 * sequences.back());
      EXPECT_EQ(operation.function(), Function::kAllReduce);
    }
    return sequences;
  }
  static std::vector<uint64_t> From(uint64_t first, uint64_t last) {
    std::vector<uint64_t> numbers;
    for (uint64_t number = first; number <= last; ++number) numbers.push_back(number);
    return numbers;
  }

  SegmentWriterV1 writer_{2};
  CompletionRing ring_;
  uint64_t lost_ = 0;
};

TEST_F(CompletionRingTest, AnEmptyRingHasNothing) {
  EXPECT_FALSE(ring_.HasBegun(Source()));
  EXPECT_EQ(Read(), From(1, 0));
}

TEST_F(CompletionRingTest, TellsEachOperationOnceAndInOrder) {
  Complete(1, 3);
  EXPECT_TRUE(ring_.HasBegun(Source()));
  EXPECT_EQ(Read(), From(1, 3));
  EXPECT_EQ(Read(), From(1, 0));
  Complete(4, 300);
  EXPECT_EQ(Read(), From(4, 300));
  Complete(301, 700);
  EXPECT_EQ(Read(), From(301, 700)) << "over the end of the ring";
  EXPECT_EQ(lost_, 0u);
}

TEST_F(CompletionRingTest, BeginsWithAllThatTheRingHolds) {
  Complete(1, 1000);
  EXPECT_EQ(Read(), From(1000 - kEntries + 1, 1000));
  EXPECT_EQ(lost_, 0u) << "what was before the first look is not ours to lose";
}

TEST_F(CompletionRingTest, CountsWhatWasOverwrittenAndGoesOn) {
  Complete(1, 10);
  Read();
  Complete(11, 1000);
  EXPECT_EQ(Read(), From(1000 - kEntries + 1, 1000));
  EXPECT_EQ(lost_, 1000 - kEntries - 10);
  Complete(1001, 1001);
  EXPECT_EQ(Read(), From(1001, 1001));
  EXPECT_EQ(lost_, 0u);
}

TEST_F(CompletionRingTest, WaitsForAnEntryThatIsBeingWritten) {
  Complete(1, 4);
  Read();
  Complete(5, 7);
  writer_.PutWord(writer_.CompletionAt(0, 5), 0);  // of ticket 6
  EXPECT_EQ(Read(), From(5, 5));
  Complete(6, 6);
  EXPECT_EQ(Read(), From(6, 7));
  EXPECT_EQ(lost_, 0u);
}

TEST_F(CompletionRingTest, IsNotLedAstrayByMadeUpTickets) {
  Complete(1, 4);
  Read();
  writer_.PutWord(writer_.CompletionAt(0, 4), UINT64_MAX);  // not this entry's
  EXPECT_EQ(Read(), From(1, 0));
  EXPECT_EQ(lost_, 0u);
  writer_.PutWord(writer_.CompletionAt(0, 4), (UINT64_MAX / kEntries - 1) * kEntries + 5);
  std::vector<CompletedOperation> operations;
  EXPECT_LE(ring_.Read(Source(), operations), uint64_t{1} << 20);
  EXPECT_LE(operations.size(), 1u);
}

TEST_F(CompletionRingTest, ATruncatedRingIsAsGoodAsEmpty) {
  Complete(1, 4);
  const std::span<const std::byte> bytes = writer_.bytes();
  std::vector<CompletedOperation> operations;
  EXPECT_EQ(ring_.Read(MemorySource(bytes.first(writer_.CompletionAt(0, 100)), 0), operations), 0u);
  EXPECT_FALSE(ring_.HasBegun(MemorySource(bytes.first(writer_.CompletionAt(0, 0)), 0)));
  EXPECT_TRUE(operations.empty());
}

TEST_F(CompletionRingTest, GivesNothingOfASlotThatIsClaimedAnew) {
  writer_.Put(0, CommunicatorV1{.generation = 3});
  Complete(1, 2);
  std::vector<CompletedOperation> operations;
  EXPECT_EQ(ring_.ReadOf(3, Source(), operations), 0u);
  EXPECT_EQ(operations.size(), 2u);
  Complete(3, 3);
  EXPECT_FALSE(ring_.ReadOf(2, Source(), operations));
}

// Changes the bytes after each copy, as a writer does who goes on.
class MovingSource : public SegmentSource {
 public:
  MovingSource(const SegmentWriterV1& writer, std::function<void()> change)
      : writer_(writer), change_(std::move(change)) {}
  uint64_t Size() const override { return writer_.bytes().size(); }
  uint64_t OwnerUid() const override { return 0; }
  ssize_t Read(uint64_t offset, std::span<std::byte> into) const override {
    const ssize_t length = MemorySource(writer_.bytes(), 0).Read(offset, into);
    change_();
    return length;
  }

 private:
  const SegmentWriterV1& writer_;
  const std::function<void()> change_;
};

TEST_F(CompletionRingTest, TakesNoEntryThatChangesWhileItIsCopied) {
  Complete(1, 4);
  Read();
  Complete(5, 8);
  const MovingSource source(writer_, [&] {  // the entry of ticket 7 is written again
    writer_.PutWord(writer_.CompletionAt(0, 6), 0);
    writer_.PutWord(writer_.CompletionAt(0, 6) + 16, 4711);
  });
  std::vector<CompletedOperation> operations;
  EXPECT_EQ(ring_.Read(source, operations), 1u) << "ticket 7";
  std::vector<uint64_t> calls_ns;
  for (const CompletedOperation& operation : operations) calls_ns.push_back(operation.call_ns);
  EXPECT_EQ(calls_ns, (std::vector<uint64_t>{50, 60, 80}));
}

}  // namespace
}  // namespace nccl_exporter::collector
