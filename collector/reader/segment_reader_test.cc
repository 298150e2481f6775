// SPDX-License-Identifier: Apache-2.0
// Whole segments: usable, starting, faulty, changing during the read.
#include "collector/reader/segment_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "collector/testing/memory_source.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

using V1 = SegmentWriterV1;

constexpr Moment kNow{.realtime_ns = 1'700'000'000'000'000'000, .monotonic_ns = 500'000'000'000};
constexpr uint64_t kUid = 1234;
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

V1 ReadySegment(size_t slots, size_t header_bytes = V1::kHeaderBytes,
                size_t slot_bytes = V1::kSlotBytes) {
  V1 writer(slots, header_bytes, slot_bytes);
  writer.Put(ProcessV1{.uid = kUid});
  writer.Publish();
  return writer;
}

SegmentRead Parse(const V1& writer, const ReadTerms& terms = {.now = kNow}) {
  return ParseSegment(writer.bytes(), kUid, terms);
}

// The error of a segment that does not parse; kCount if it does, or is starting.
SegmentError ErrorOf(const V1& writer) {
  const SegmentRead read = Parse(writer);
  EXPECT_NE(read.process.has_value(), read.fault.has_value());
  return read.fault ? read.fault->error : SegmentError::kCount;
}

SegmentError ErrorWith(size_t offset, uint64_t word) {
  V1 writer = ReadySegment(2);
  writer.PutWord(offset, word);
  return ErrorOf(writer);
}

TEST(SegmentReaderTest, TakesAFileWithoutVersionForOneThatIsStarting) {
  V1 writer(2);
  EXPECT_FALSE(Parse(writer).process);
  EXPECT_FALSE(Parse(writer).fault);
  EXPECT_FALSE(ParseSegment({}, kUid, {.now = kNow}).fault);
}

TEST(SegmentReaderTest, RefusesWhatIsNoSegment) {
  EXPECT_EQ(ErrorWith(V1::kMagic, 1), SegmentError::kBadMagic);
}

TEST(SegmentReaderTest, RefusesAnotherMajorAndNamesBoth) {
  V1 writer = ReadySegment(2);
  writer.PutWord(V1::kVersion, uint64_t{2} << 32 | 7);
  const SegmentRead read = Parse(writer);
  ASSERT_TRUE(read.fault);
  EXPECT_EQ(read.fault->error, SegmentError::kUnknownMajor);
  EXPECT_NE(read.fault->detail.find("2.7"), std::string::npos) << read.fault->detail;
  EXPECT_NE(read.fault->detail.find("1.8"), std::string::npos) << read.fault->detail;
}

TEST(SegmentReaderTest, ReadsAHigherMinorByTheStridesInItsHeader) {
  V1 writer = ReadySegment(3, V1::kHeaderBytes + 4096, V1::kSlotBytes + 64);
  writer.PutWord(V1::kVersion, V1::kVersion1 | 9);
  writer.Put(0, CommunicatorV1{.id = 41});
  writer.Put(1, CommunicatorV1{.id = 42});
  const SegmentRead read = Parse(writer);
  ASSERT_TRUE(read.process);
  ASSERT_EQ(read.process->communicators.size(), 2u);
  EXPECT_EQ(read.process->communicators[1].id, 42u);
}

TEST(SegmentReaderTest, TakesTheFilesOwnerForTheUserWhateverTheHeaderClaims) {
  const V1 writer = ReadySegment(2);
  const SegmentRead read = ParseSegment(writer.bytes(), kUid + 1, {.now = kNow});
  ASSERT_TRUE(read.process);
  EXPECT_EQ(read.process->uid, kUid + 1);
}

TEST(SegmentReaderTest, ReadsTheChainedPluginOfAProcess) {
  V1 writer = ReadySegment(2);
  EXPECT_FALSE(Parse(writer).process->chained) << "a segment before 1.8, or without one";
  writer.PutWord(V1::kChain, 6400);
  writer.PutWord(V1::kChain + 8, 250'000);
  writer.PutText(V1::kChain + 24, 40, "Inspector");
  EXPECT_FALSE(Parse(writer).process->chained) << "it is not open";
  EXPECT_EQ(Parse(writer).process->chained_callbacks, 0u);
  for (const uint64_t flags : {1, 3, 5, 7}) {
    writer.PutWord(V1::kChain + 16, flags);
    const SegmentRead read = Parse(writer);
    const ChainedPlugin expected{.name = "Inspector",
                                 .lacks_kernel_events = (flags & 2) != 0,
                                 .is_over_budget = (flags & 4) != 0};
    EXPECT_EQ(read.process->chained, expected) << flags;
    EXPECT_EQ(read.process->chained_callbacks, 6400u);
    EXPECT_EQ(read.process->chained_ns, 250'000u);
  }
}

TEST(SegmentReaderTest, ReadsTheJobOfAProcess) {
  V1 writer = ReadySegment(2);
  EXPECT_EQ(Parse(writer).process->JobName(), "") << "a segment before 1.7";
  writer.PutWord(V1::kFirstCommunicator, 0xab);
  EXPECT_EQ(Parse(writer).process->JobName(), "00000000000000ab");
  const auto with = [&](std::vector<std::pair<std::string, std::string>> identity) {
    writer.Put(ProcessV1{.identity = std::move(identity)});
    return Parse(writer).process->JobName();
  };
  EXPECT_EQ(with({{"TORCHELASTIC_RUN_ID", "none"}}), "00000000000000ab") << "torchrun's default";
  // Regression: two pods of a node that use one port of localhost were one job, and two jobs that
  // use one port of a node one after the other.
  for (const char* address : {"localhost", "::1", "0.0.0.0", "10.0.0.7", "trainer-0"}) {
    EXPECT_EQ(with({{"MASTER_ADDR", address}, {"MASTER_PORT", "29500"}, {"NODE_NAME", "n"}}),
              "00000000000000ab");
  }
  EXPECT_EQ(with({{"TORCHELASTIC_RUN_ID", "run-7"}}), "run-7");
  EXPECT_EQ(with({{"TORCHELASTIC_RUN_ID", "run-7"}, {"NCCL_EXPORTER_JOB", "llama"}}), "llama");
  EXPECT_EQ(with({{"NCCL_EXPORTER_JOB", "llama"}, {"SLURM_JOB_ID", "4711"}}), "4711");
  // Regression: a blank was a name, and all jobs that have it were one.
  EXPECT_EQ(with({{"NCCL_EXPORTER_JOB", " "}}), "00000000000000ab");
  EXPECT_EQ(with({{"TORCHELASTIC_RUN_ID", "run-7"}, {"NCCL_EXPORTER_JOB", " \t\r\n"}}), "run-7");
  EXPECT_EQ(with({{"NCCL_EXPORTER_JOB", " a "}}), " a ");
}

// Numbers of ranks, as text.
std::string TextOf(const RankNumbers& numbers) {
  const auto text = [](const std::optional<uint32_t>& number) {
    return number ? std::to_string(*number) : "-";
  };
  return text(numbers.global_rank) + ' ' + text(numbers.local_rank) + " of " +
         std::to_string(numbers.world_size);
}

TEST(SegmentReaderTest, BeforeNumbersOfCommunicatorsTakesAProvenRankOfTheProcess) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{.id = 41});
  const auto with = [&](std::vector<std::pair<std::string, std::string>> identity) {
    writer.Put(ProcessV1{.identity = std::move(identity)});
    const SegmentRead read = Parse(writer);
    EXPECT_EQ(TextOf(read.process->numbers), TextOf(read.process->communicators.at(0).numbers));
    return TextOf(read.process->numbers);
  };
  EXPECT_EQ(with({{"RANK", "3"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "8"}}), "3 1 of 8");
  for (const char* rank : {" 3", "3.0", "abc", "8", "-1", "+3", "99999999999"})
    EXPECT_EQ(with({{"RANK", rank}, {"WORLD_SIZE", "8"}}), "- - of 0") << rank;
  EXPECT_EQ(with({{"RANK", "3"}}), "- - of 0");
  EXPECT_EQ(with({{"SLURM_PROCID", "0"}}), "- - of 0");
  writer.PutWord(V1::kRankNumbersProcess, 1);  // 1.2
  EXPECT_EQ(with({{"RANK", "3"}, {"WORLD_SIZE", "8"}}), "- - of 0");
}

// Regresses: RANK and WORLD_SIZE were those of the first communicator for the life of the process.
TEST(SegmentReaderTest, ReadsTheNumbersOfEachCommunicatorAndOfTheProcessThoseOfTheLatest) {
  V1 writer = ReadySegment(4, V1::kHeaderBytes, V1::kSlotBytesOf13);
  writer.PutWord(V1::kVersion, V1::kVersion1 | 7);
  writer.Put(ProcessV1{.identity = {{"RANK", "5"}, {"WORLD_SIZE", "8"}}});
  writer.Put(0, CommunicatorV1{.id = 41, .created_realtime_ns = 5});
  writer.Put(1, CommunicatorV1{.id = 42, .created_realtime_ns = 7});
  writer.Put(2, CommunicatorV1{.id = 43, .created_realtime_ns = 6});
  const auto put = [&](size_t slot, std::array<uint64_t, 3> words) {
    for (size_t i = 0; i < words.size(); ++i)
      writer.PutWord(V1::RankNumbersAt(writer.SlotAt(slot)) + 8 * i, words[i]);
  };
  put(0, {6, 2, 8});
  put(1, {4, 1, 6});
  put(2, {7, 1, 6});  // no rank of six: written by nobody
  const SegmentRead read = Parse(writer);
  EXPECT_EQ(TextOf(read.process->communicators.at(0).numbers), "5 1 of 8");
  EXPECT_EQ(TextOf(read.process->communicators.at(1).numbers), "3 0 of 6");
  EXPECT_EQ(TextOf(read.process->communicators.at(2).numbers), "- - of 0");
  EXPECT_EQ(TextOf(read.process->numbers), "3 0 of 6");
  writer.PutWord(V1::kRankNumbersProcess, 1);
  const SegmentRead numbered = Parse(writer);
  EXPECT_EQ(TextOf(numbered.process->communicators.at(1).numbers), "- - of 0");
  EXPECT_EQ(TextOf(numbered.process->numbers), "- - of 0");
}

TEST(SegmentReaderTest, ReadsWhatEndedKernelTimingAndWhatIsOnProbation) {
  V1 writer = ReadySegment(3);
  writer.Put(0, CommunicatorV1{.pci_bus_id = "0000:3b:00.0"});
  writer.Put(1, CommunicatorV1{});
  for (const uint64_t cause : {uint64_t{1}, uint64_t{1000}}) {
    writer.PutWord(V1::DriftCauseAt(writer.SlotAt(1)), cause);
    writer.PutWord(V1::ProbationAt(writer.SlotAt(1)), 64);
    const SegmentRead read = Parse(writer);
    ASSERT_TRUE(read.process);
    const auto& communicators = read.process->communicators;
    ASSERT_EQ(communicators.size(), 2u);
    EXPECT_EQ(communicators[0].drift_cause, DriftCause::kNone) << "a segment before 1.2";
    EXPECT_EQ(communicators[0].probation_launches, 0u);
    EXPECT_EQ(communicators[0].pci_bus_id, "0000:3b:00.0");
    EXPECT_EQ(communicators[1].drift_cause,
              cause == 1 ? DriftCause::kMessageToSelf : DriftCause::kNone);
    EXPECT_EQ(communicators[1].probation_launches, 64u);
  }
}

TEST(SegmentReaderTest, RefusesSizesThatContradictTheLimitsOrEachOther) {
  for (const size_t field :
       {V1::kHeaderBytesField, V1::kSlotBytesField, V1::kSlotCountField, V1::kFileBytesField}) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63, kHuge, kHuge - 7}) {
      EXPECT_EQ(ErrorWith(field, value), SegmentError::kBadGeometry)
          << "field " << field << " value " << value;
    }
  }
  EXPECT_EQ(ErrorWith(V1::kHeaderBytesField, V1::kHeaderBytes - 8), SegmentError::kBadGeometry);
  EXPECT_EQ(ErrorWith(V1::kSlotBytesField, V1::kSlotBytes - 8), SegmentError::kBadGeometry);
  EXPECT_EQ(ErrorWith(V1::kSlotCountField, 4097), SegmentError::kBadGeometry);
  EXPECT_EQ(ErrorWith(V1::kIdentityCount, 33), SegmentError::kBadGeometry);
}

TEST(SegmentReaderTest, RefusesSizesWhoseProductWrapsToTheSizeOfTheFile) {
  V1 writer = ReadySegment(2);
  writer.PutWord(V1::kSlotBytesField, uint64_t{1} << 63);  // twice that is 0, modulo 2^64
  writer.PutWord(V1::kFileBytesField, V1::kHeaderBytes);
  EXPECT_EQ(ErrorOf(writer), SegmentError::kBadGeometry);
}

TEST(SegmentReaderTest, ServesNothingOfAFileThatIsShorterThanItSays) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{});
  const std::span<const std::byte> bytes = writer.bytes();
  for (const size_t length :
       {size_t{9}, size_t{100}, V1::kHeaderBytes, V1::kHeaderBytes + 100, bytes.size() - 1}) {
    const SegmentRead read = ParseSegment(bytes.first(length), kUid, {.now = kNow});
    ASSERT_TRUE(read.fault) << length;
    EXPECT_EQ(read.fault->error, SegmentError::kTruncated) << length;
    EXPECT_FALSE(read.process);
  }
}

TEST(SegmentReaderTest, LeavesOutSlotsThatAreBeingClaimedOrInAnUnknownState) {
  V1 writer = ReadySegment(4);
  writer.Put(0, CommunicatorV1{.state = 1});
  writer.Put(1, CommunicatorV1{.state = 4});
  writer.Put(2, CommunicatorV1{.state = 2, .id = 3});
  const SegmentRead read = Parse(writer);
  ASSERT_EQ(read.process->communicators.size(), 1u);
  EXPECT_EQ(read.process->communicators[0].id, 3u);
}

TEST(SegmentReaderTest, LooksForNoCommunicatorBehindTheFirstFreeSlotButForTheOverflowSlot) {
  V1 writer = ReadySegment(4);
  writer.Put(0, CommunicatorV1{.state = 2, .id = 1});
  writer.Put(2, CommunicatorV1{.state = 2, .id = 3});  // no plugin does that
  writer.Put(3, 4, FunctionV1{.operations = {0, 0, 7}});
  const SegmentRead read = Parse(writer);
  ASSERT_EQ(read.process->communicators.size(), 2u);
  EXPECT_EQ(read.process->communicators[0].id, 1u);
  EXPECT_TRUE(read.process->communicators[1].is_overflow);
}

TEST(SegmentReaderTest, ServesTheOverflowSlotOnlyWithCountsAndWithoutIdentity) {
  V1 writer = ReadySegment(2);
  EXPECT_TRUE(Parse(writer).process->communicators.empty());
  writer.Put(1, CommunicatorV1{.state = 2, .timing_source = 1});
  EXPECT_TRUE(Parse(writer).process->communicators.empty());
  writer.Put(1, 4, FunctionV1{.operations = {0, 0, 7}});
  const SegmentRead read = Parse(writer);
  ASSERT_EQ(read.process->communicators.size(), 1u);
  const CommunicatorSnapshot& overflow = read.process->communicators[0];
  EXPECT_TRUE(overflow.is_overflow);
  EXPECT_FALSE(overflow.has_identity);
  EXPECT_FALSE(overflow.completion_is_known);
  EXPECT_EQ(overflow.started_sequence, 7u);
  EXPECT_EQ(overflow.timing_reason, TimingReason::kOverflow);
}

TEST(SegmentReaderTest, ServesAFinalizedCommunicatorForTheRetentionTime) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{.state = 3, .closed_monotonic_ns = 400'000'000'000});
  ReadTerms terms{.now = kNow, .retention = std::chrono::seconds(100)};
  const SegmentRead read = Parse(writer, terms);
  ASSERT_EQ(read.process->communicators.size(), 1u);
  EXPECT_TRUE(read.process->communicators[0].is_closed);
  EXPECT_EQ(read.stale_at_ns, 500'000'000'001u);
  terms.now.monotonic_ns = 500'000'000'001;
  EXPECT_TRUE(Parse(writer, terms).process->communicators.empty());
}

// Regression: it was served as created at the moment of the read, and later with its real time of
// creation.
TEST(SegmentReaderTest, LeavesACommunicatorThatIsNewerThanTheReadToTheNextOne) {
  V1 writer = ReadySegment(2);
  const Moment later{.realtime_ns = kNow.realtime_ns + 2'000'000,
                     .monotonic_ns = kNow.monotonic_ns + 2'000'000};
  writer.Put(0, CommunicatorV1{.created_realtime_ns = static_cast<uint64_t>(later.realtime_ns),
                               .created_monotonic_ns = static_cast<uint64_t>(later.monotonic_ns)});
  const SegmentRead read = Parse(writer);
  EXPECT_TRUE(read.process->communicators.empty());
  EXPECT_EQ(read.stale_at_ns, static_cast<uint64_t>(later.monotonic_ns));
  const SegmentRead next = Parse(writer, {.now = later});
  ASSERT_EQ(next.process->communicators.size(), 1u);
  EXPECT_EQ(next.process->communicators[0].created_realtime_ns, later.realtime_ns);
}

TEST(SegmentReaderTest, ServesWhatClaimsToBeCreatedInAFarFuture) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{.created_monotonic_ns = kHuge});
  EXPECT_EQ(Parse(writer).process->communicators.size(), 1u);
}

std::vector<uint32_t> SlotsOf(const SegmentRead& read) {
  std::vector<uint32_t> slots;
  for (const CommunicatorSnapshot& communicator : read.process->communicators)
    slots.push_back(communicator.slot);
  return slots;
}

// Regression: a file with more communicators than there was room for was not served at all.
TEST(SegmentReaderTest, LeavesOutTheFinalizedFirstThenTheNewest) {
  V1 writer = ReadySegment(6);
  writer.Put(0, CommunicatorV1{.created_monotonic_ns = 3});
  writer.Put(1, CommunicatorV1{.state = 3, .closed_monotonic_ns = 7'000'000'000});
  writer.Put(2, CommunicatorV1{.created_monotonic_ns = 1});
  writer.Put(3, CommunicatorV1{.state = 3, .closed_monotonic_ns = 8'000'000'000});
  writer.Put(4, CommunicatorV1{.created_monotonic_ns = 2});
  const std::vector<std::vector<uint32_t>> served{{},        {2},          {2, 4},
                                                  {0, 2, 4}, {0, 2, 3, 4}, {0, 1, 2, 3, 4}};
  for (uint64_t limit = 0; limit < served.size(); ++limit) {
    const SegmentRead read = Parse(writer, {.now = kNow, .communicator_limit = limit});
    ASSERT_TRUE(read.process);
    EXPECT_FALSE(read.fault);
    EXPECT_EQ(SlotsOf(read), served[limit]);
    EXPECT_EQ(read.process->unread_in_use, 3 - std::min<uint64_t>(limit, 3));
    EXPECT_EQ(read.process->unread_finalized, std::min<uint64_t>(5 - limit, 2));
    EXPECT_EQ(read.room, limit);
    EXPECT_EQ(read.wanted_in_use, 3u) << "with those left out";
    EXPECT_EQ(read.wanted_finalized, 2u);
  }
}

TEST(SegmentReaderTest, SaysThatSlotsWereNotLookedAt) {
  V1 writer = ReadySegment(4);
  for (size_t slot = 0; slot < 3; ++slot) writer.Put(slot, CommunicatorV1{});
  uint64_t left = 2;
  const SegmentRead read = Parse(writer, {.now = kNow, .slots_left = &left});
  ASSERT_TRUE(read.process);
  EXPECT_EQ(SlotsOf(read), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(read.process->unread_in_use, 1u) << "at least";
}

// Regression: a job in a time namespace had no hangs, for its times were in the future.
TEST(SegmentReaderTest, ReadsTheTimesOfAClockThatIsAheadOfOurs) {
  constexpr int64_t kOffset = 100'000'000'000'000;
  V1 writer(2);
  writer.Put(ProcessV1{.uid = kUid, .start_monotonic_ns = 5'000'000'000 + kOffset});
  writer.Put(0, CommunicatorV1{.created_monotonic_ns = 6'000'000'000 + kOffset});
  writer.Put(0, 0, FunctionV1{.last_start_ns = 7'000'000'000 + kOffset, .operations = {1}});
  writer.Publish();
  const SegmentRead wrong = Parse(writer);
  EXPECT_EQ(static_cast<int64_t>(wrong.ahead_ns), 7'000'000'000 + kOffset - kNow.monotonic_ns);
  EXPECT_EQ(wrong.process->communicators.at(0).last_progress_realtime_ns, kNow.realtime_ns);
  const SegmentRead read = Parse(writer, {.now = kNow, .clock_offset_ns = kOffset});
  EXPECT_EQ(read.ahead_ns, 0u);
  EXPECT_EQ(read.process->start_monotonic_ns, 5'000'000'000);
  const CommunicatorSnapshot& communicator = read.process->communicators.at(0);
  EXPECT_EQ(communicator.last_progress_monotonic_ns, 7'000'000'000);
  EXPECT_EQ(communicator.last_progress_realtime_ns,
            kNow.realtime_ns - (kNow.monotonic_ns - 7'000'000'000));
}

// Regresses: operations of a moment ago were idle for ten minutes.
TEST(SegmentReaderTest, ReadsTheTimesOfAClockThatIsBehindOurs) {
  constexpr int64_t kOffset = -400'000'000'000;
  constexpr int64_t kCall = kNow.monotonic_ns - 1'000'000'000;
  V1 writer(2);
  writer.Put(ProcessV1{.uid = kUid, .start_monotonic_ns = kCall + kOffset});
  writer.Put(0, CommunicatorV1{.created_monotonic_ns = kCall + kOffset});
  writer.Put(0, 0, FunctionV1{.last_start_ns = kCall + kOffset, .operations = {1}});
  writer.Put(0, InFlightV1{.ticket = 1, .sequence = 1, .start_ns = kCall + kOffset});
  writer.Publish();
  const SegmentRead read = Parse(writer, {.now = kNow, .clock_offset_ns = kOffset});
  EXPECT_EQ(read.ahead_ns, 0u);
  EXPECT_EQ(read.process->start_monotonic_ns, kCall);
  const CommunicatorSnapshot& communicator = read.process->communicators.at(0);
  EXPECT_EQ(communicator.last_progress_monotonic_ns, kCall);
  EXPECT_EQ(communicator.last_progress_realtime_ns, kNow.realtime_ns - 1'000'000'000);
  ASSERT_EQ(communicator.in_flight.size(), 1u);
  EXPECT_EQ(communicator.in_flight[0].start_realtime_ns, kNow.realtime_ns - 1'000'000'000);
}

TEST(SegmentReaderTest, TellsTheLastSignOfLife) {
  V1 writer(2);
  writer.Put(ProcessV1{.uid = kUid, .start_realtime_ns = 5});
  writer.Publish();
  EXPECT_EQ(Parse(writer).last_sign_of_life_realtime_ns, 5);
  writer.Put(0, CommunicatorV1{.created_realtime_ns = 7});
  EXPECT_EQ(Parse(writer).last_sign_of_life_realtime_ns, 7);
  writer.Put(0, 0, FunctionV1{.last_start_ns = 1'000'000'000});
  EXPECT_EQ(Parse(writer).last_sign_of_life_realtime_ns, kNow.realtime_ns - 499'000'000'000);
  writer.Put(0, CommunicatorV1{.state = 3, .closed_monotonic_ns = 2'000'000'000});
  EXPECT_EQ(Parse(writer, {.now = kNow, .retention = std::chrono::seconds(1)})
                .last_sign_of_life_realtime_ns,
            kNow.realtime_ns - 498'000'000'000);
}

// A segment that a writer changes between the reads: `before_read` is called with the offset and
// the length of each.
class ChangingSource : public SegmentSource {
 public:
  using BeforeRead = std::function<void(uint64_t offset, size_t length)>;
  ChangingSource(const V1& writer, BeforeRead before_read)
      : writer_(writer), before_read_(std::move(before_read)) {}

  uint64_t Size() const override { return writer_.bytes().size(); }
  uint64_t OwnerUid() const override { return kUid; }
  ssize_t Read(uint64_t offset, std::span<std::byte> into) const override {
    before_read_(offset, into.size());
    bytes_read += into.size();
    return fails ? -1 : MemorySource(writer_.bytes(), kUid).Read(offset, into);
  }

  mutable uint64_t bytes_read = 0;
  bool fails = false;

 private:
  const V1& writer_;
  const BeforeRead before_read_;
};

constexpr size_t kStateWord = 8;  // bytes of a read of the state alone

TEST(SegmentReaderTest, ReadsOfFreeSlotsTheStateAlone) {
  const V1 writer = ReadySegment(256);
  const ChangingSource source(writer, [](uint64_t, size_t) {});
  ASSERT_TRUE(ReadSegment(source, {.now = kNow}).process);
  EXPECT_LT(source.bytes_read, V1::kHeaderBytes + V1::kSlotBytes + 256 * kStateWord);
}

TEST(SegmentReaderTest, LeavesOutAndCountsASlotThatIsClaimedAnewEachTimeItIsCopied) {
  V1 writer = ReadySegment(3);
  writer.Put(0, CommunicatorV1{.id = 10});
  writer.Put(1, CommunicatorV1{.id = 11});
  uint64_t generation = 1;
  const ChangingSource source(writer, [&](uint64_t offset, size_t) {
    if (offset == writer.SlotAt(0))
      writer.Put(0, CommunicatorV1{.generation = ++generation, .id = 10});
  });
  const SegmentRead read = ReadSegment(source, {.now = kNow});
  EXPECT_EQ(read.changed_slots, 1u);
  ASSERT_EQ(read.process->communicators.size(), 1u);
  EXPECT_EQ(read.process->communicators[0].id, 11u);
}

TEST(SegmentReaderTest, CopiesASlotOnceMoreThatIsFinalizedDuringTheCopy) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{.state = 2});
  bool was_copied = false;
  const ChangingSource source(writer, [&](uint64_t offset, size_t length) {
    if (offset != writer.SlotAt(0)) return;
    if (was_copied)
      writer.Put(0, CommunicatorV1{.state = 3, .closed_monotonic_ns = 400'000'000'000});
    was_copied = was_copied || length > kStateWord;
  });
  const SegmentRead read = ReadSegment(source, {.now = kNow});
  EXPECT_EQ(read.changed_slots, 0u);
  ASSERT_EQ(read.process->communicators.size(), 1u);
  EXPECT_TRUE(read.process->communicators[0].is_closed);
}

TEST(SegmentReaderTest, LeavesOutOperationsInFlightThatChangedDuringTheCopy) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{});
  writer.Put(0, InFlightV1{.ticket = 1, .sequence = 100});
  writer.Put(0, InFlightV1{.ticket = 2, .sequence = 101});
  writer.Put(0, InFlightV1{.ticket = 3, .sequence = 102});
  const ChangingSource source(writer, [&](uint64_t offset, size_t) {
    if (offset != writer.InFlightAt(0, 0)) return;  // the second read
    writer.PutWord(writer.InFlightAt(0, 0), 0);     // given back
    writer.Put(0, InFlightV1{.ticket = 2 + V1::kInFlightEntries, .sequence = 200});
  });
  const SegmentRead read = ReadSegment(source, {.now = kNow});
  ASSERT_EQ(read.process->communicators.size(), 1u);
  ASSERT_EQ(read.process->communicators[0].in_flight.size(), 1u);
  EXPECT_EQ(read.process->communicators[0].in_flight[0].sequence, 102u);
}

// Regression: on Arm a copy may have an entry's new ticket and what stood there before it.
TEST(SegmentReaderTest, TakesAnOperationInFlightAsItIsBetweenTwoReadsOfItsTicket) {
  V1 writer = ReadySegment(2);
  writer.Put(0, CommunicatorV1{});
  writer.Put(0, InFlightV1{.ticket = 1, .sequence = 77});
  const ChangingSource source(writer, [&](uint64_t offset, size_t) {
    if (offset == writer.InFlightAt(0, 0)) writer.Put(0, InFlightV1{.ticket = 1, .sequence = 100});
  });
  const SegmentRead read = ReadSegment(source, {.now = kNow});
  ASSERT_EQ(read.process->communicators.size(), 1u);
  ASSERT_EQ(read.process->communicators[0].in_flight.size(), 1u);
  EXPECT_EQ(read.process->communicators[0].in_flight[0].sequence, 100u);
}

TEST(SegmentReaderTest, SaysSoWhenReadingFails) {
  const V1 writer = ReadySegment(2);
  ChangingSource source(writer, [](uint64_t, size_t) {});
  source.fails = true;
  const SegmentRead read = ReadSegment(source, {.now = kNow});
  ASSERT_TRUE(read.fault);
  EXPECT_EQ(read.fault->error, SegmentError::kReadFailed);
}

}  // namespace
}  // namespace nccl_exporter::collector
