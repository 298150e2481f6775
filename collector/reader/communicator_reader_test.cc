// SPDX-License-Identifier: Apache-2.0
// Fields of a slot in the snapshot, valid and invalid.
#include "collector/reader/communicator_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "collector/reader/segment_reader.h"
#include "collector/testing/memory_source.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

constexpr Moment kNow{.realtime_ns = 1'700'000'000'000'000'000, .monotonic_ns = 500'000'000'000};
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNowNs = 500 * kSecond;

enum Source : uint64_t { kNone, kKernel, kKernelCpu, kProxy };

// A segment with one communicator, in slot 0.
class CommunicatorReaderTest : public testing::Test {
 protected:
  CommunicatorReaderTest() {
    writer_.Put(ProcessV1{});
    writer_.Put(0, CommunicatorV1{});
    writer_.Publish();
  }

  SegmentRead Read() { return ParseSegment(writer_.bytes(), 0, {.now = kNow}); }
  CommunicatorSnapshot Communicator() { return Read().process.value().communicators.at(0); }

  SegmentWriterV1 writer_{2};
};

TEST_F(CommunicatorReaderTest, TakesUnknownNumbersForUnknown) {
  writer_.Put(0, CommunicatorV1{.api_version = kHuge,
                                .nccl_version = kHuge,
                                .timing_source = 4,
                                .timing_reason = kHuge,
                                .gpu_index_plus_1 = kHuge,
                                .created_realtime_ns = kHuge});
  const CommunicatorSnapshot communicator = Communicator();
  EXPECT_EQ(communicator.api_version, 0);
  EXPECT_EQ(communicator.nccl_version, 0);
  EXPECT_EQ(communicator.timing_source, TimingSource::kNone);
  EXPECT_EQ(communicator.timing_reason, TimingReason::kDefault);
  EXPECT_EQ(communicator.gpu_index, -1);
  EXPECT_EQ(communicator.created_realtime_ns, kNow.realtime_ns);
}

TEST_F(CommunicatorReaderTest, SaysMinusOneForAnUnknownGpuAndPeer) {
  writer_.Put(0, InFlightV1{.ticket = 1, .function = 4});
  EXPECT_EQ(Communicator().gpu_index, -1);
  EXPECT_EQ(Communicator().in_flight.at(0).peer, -1);
}

TEST_F(CommunicatorReaderTest, NeverCountsMoreCompletionsThanStarts) {
  writer_.Put(0, 4, FunctionV1{.operations = {3}, .completed = 5});
  writer_.Put(0, 0, FunctionV1{.operations = {2}, .completed = 1});
  const CommunicatorSnapshot communicator = Communicator();
  EXPECT_EQ(communicator.functions[4].completed, 3u);
  EXPECT_EQ(communicator.started_sequence, 5u);
  EXPECT_EQ(communicator.completed_sequence, 4u);
}

TEST_F(CommunicatorReaderTest, KeepsTheFunctionsInUseAndSharesThemAmongCopies) {
  writer_.Put(0, 4, FunctionV1{.operations = {3}, .completed = 3});
  const CommunicatorSnapshot communicator = Communicator();
  EXPECT_EQ(&communicator.functions[0], &communicator.functions[1])
      << "memory for a function that was never used";
  CommunicatorSnapshot copy = communicator;
  EXPECT_EQ(&copy.functions[4], &communicator.functions[4]);
  copy.functions.Change(4).completed = 2;
  EXPECT_EQ(copy.functions[4].completed, 2u);
  EXPECT_EQ(communicator.functions[4].completed, 3u);
}

// A segment of 1.4, or of 1.3, which has zeros there.
class NetworkTimeTest : public testing::Test {
 protected:
  NetworkTimeTest() {
    writer_.Put(ProcessV1{});
    writer_.Put(0, CommunicatorV1{});
    for (size_t direction = 0; direction < 2; ++direction) {
      for (size_t word = 0; word < 6; ++word)
        writer_.PutWord(SegmentWriterV1::NetworkAt(writer_.SlotAt(0), direction) + word * 8,
                        100 * (direction + 1) + word);
    }
    writer_.Publish();
  }
  void PutShare(uint64_t ppm) {
    writer_.PutWord(SegmentWriterV1::NetworkShareAt(writer_.SlotAt(0)), ppm);
  }
  CommunicatorSnapshot Read() const {
    return ParseSegment(writer_.bytes(), 0, {.now = kNow}).process.value().communicators.at(0);
  }

  SegmentWriterV1 writer_{2, SegmentWriterV1::kHeaderBytes, SegmentWriterV1::kSlotBytesOf13};
};

TEST_F(NetworkTimeTest, IsReadByDirectionAndState) {
  PutShare(100'000);
  const CommunicatorSnapshot communicator = Read();
  const NetworkCounts& counts = communicator.network.value();
  EXPECT_EQ(communicator.network_share_ppm, 100'000u);
  for (size_t direction = 0; direction < 2; ++direction) {
    const NetworkDirectionCounts& read = counts.directions[direction];
    for (size_t state = 0; state < 4; ++state)
      EXPECT_EQ(read.wait_ns[state], 100 * (direction + 1) + state);
    EXPECT_EQ(read.bytes, 100 * (direction + 1) + 4);
    EXPECT_EQ(read.operations, 100 * (direction + 1) + 5);
  }
}

TEST_F(NetworkTimeTest, IsAbsentWhereThePluginTimesNone) { EXPECT_FALSE(Read().network); }

TEST_F(NetworkTimeTest, HasNoShareAboveOne) {
  PutShare(kHuge);
  EXPECT_EQ(Read().network_share_ppm, 1'000'000u);
}

class NetworkBusBytesTest : public NetworkTimeTest {
 protected:
  NetworkBusBytesTest() {
    PutShare(100'000);
    Put(Function::kAllReduce, {1 << 20, 3 << 20}, 1 << 20);
    Put(Function::kAllGather, {0, 8 << 20}, 2 << 20);
    Put(Function::kSend, {0, 64}, 16);
    Put(Function::kRecv, {0, 128}, 32);
    Put(Function::kOther, {0, 1 << 20}, 1 << 20);  // its bytes on a bus are not known
  }
  void Put(Function function, const std::array<uint64_t, 2>& bytes, uint64_t timed) {
    const auto i = static_cast<size_t>(function);
    writer_.Put(0, i, FunctionV1{.operations = {1, 1}, .bytes = {bytes[0], bytes[1]}});
    writer_.PutWord(SegmentWriterV1::NetworkTimedBytesAt(writer_.FunctionAt(0, i)), timed);
  }
  void PutMinor(uint64_t minor) {
    writer_.PutWord(SegmentWriterV1::kVersion, SegmentWriterV1::kVersion1 | minor);
  }
};

TEST_F(NetworkBusBytesTest, AreThoseOfCollectivesAndOfTheSendsOrReceives) {
  PutMinor(6);
  for (const uint64_t ranks : {0, 4}) {
    writer_.Put(0, CommunicatorV1{.ranks = ranks});
    PutShare(100'000);
    const uint64_t quarters = ranks == 0 ? 4 : 3;
    const NetworkBusBytes bytes = Read().network_bus_bytes.value();
    const uint64_t all = (2 * (4 << 20) + (8 << 20)) / 4 * quarters;
    const uint64_t timed = (2 * (1 << 20) + (2 << 20)) / 4 * quarters;
    EXPECT_EQ(bytes.all, (std::array<uint64_t, 2>{all + 64, all + 128}));
    EXPECT_EQ(bytes.timed, (std::array<uint64_t, 2>{timed + 16, timed + 32}));
  }
}

TEST_F(NetworkBusBytesTest, AreNotKnownBefore16NorWithoutNetworkTime) {
  PutMinor(5);
  EXPECT_TRUE(Read().network);
  EXPECT_FALSE(Read().network_bus_bytes);
  PutMinor(7);
  EXPECT_TRUE(Read().network_bus_bytes);
  PutShare(0);
  EXPECT_FALSE(Read().network_bus_bytes);
}

TEST_F(NetworkBusBytesTest, OfAFunctionThatClaimsMoreThanThereCanBeAreTheMost) {
  PutMinor(6);
  Put(Function::kBroadcast, {kHuge, 0}, kHuge);
  constexpr uint64_t kMost = uint64_t{1} << 63;
  EXPECT_EQ(Read().network_bus_bytes.value(),
            (NetworkBusBytes{.all = {kMost, kMost}, .timed = {kMost, kMost}}));
}

TEST_F(CommunicatorReaderTest, FindsNoNetworkTimeInASlotThatEndsBefore) {
  EXPECT_FALSE(Communicator().network);
}

// A segment of 1.3 with an AllReduce of three size classes, of which the second is not timed.
class DurationsBySizeTest : public testing::Test {
 protected:
  DurationsBySizeTest() {
    writer_.Put(ProcessV1{});
    writer_.Put(0, CommunicatorV1{});
    writer_.Put(0, 4,
                FunctionV1{.operations = {3, 2, 1},
                           .timed_operations = {3, 0, 1},
                           .busy_ns = {60, 0, 70},
                           .duration = {1, 2, 1}});
    writer_.Put(0, 0, SizeHistogramV1{.function = 4, .size_class = 2, .duration = {0, 0, 1}});
    writer_.Put(0, 1, SizeHistogramV1{.function = 4, .size_class = 0, .duration = {1, 2}});
    writer_.Publish();
  }

  FunctionSnapshot Read(bool splits_durations = true) const {
    const ReadTerms terms{.now = kNow, .splits_durations = splits_durations};
    return ParseSegment(writer_.bytes(), 0, terms).process.value().communicators.at(0).functions[4];
  }
  static bool IsSplit(const FunctionSnapshot& function) {
    return std::ranges::any_of(function.duration_by_size,
                               [](const SizedDurations& sized) { return !sized.counts.empty(); });
  }

  SegmentWriterV1 writer_{2, SegmentWriterV1::kHeaderBytes, SegmentWriterV1::kSlotBytesOf13};
};

TEST_F(DurationsBySizeTest, AreReadOnRequest) {
  const FunctionSnapshot function = Read();
  EXPECT_EQ(function.duration_by_size[0].counts.at(1), 2u);
  EXPECT_EQ(function.duration_by_size[0].busy_ns, 60u);
  EXPECT_TRUE(function.duration_by_size[1].counts.empty());
  EXPECT_EQ(function.duration_by_size[2].counts.at(2), 1u);
  EXPECT_EQ(function.duration_by_size[2].busy_ns, 70u);
  EXPECT_FALSE(IsSplit(Read(false)));
}

TEST_F(DurationsBySizeTest, AddUpToTheDurationsOfTheFunction) {
  writer_.Put(0, 1, SizeHistogramV1{.function = 4, .size_class = 0, .duration = {1, 3}});
  EXPECT_EQ(Read(false).duration[1], 2u);
  EXPECT_EQ(Read().duration[1], 3u) << "counted after the function was copied";
}

// Regression: one segment of any user made Prometheus refuse all that the daemon serves, where it
// reads native histograms.
TEST_F(DurationsBySizeTest, HaveAMaximumAsAllCountsOfHistograms) {
  constexpr uint64_t kForged = uint64_t{1} << 63;
  writer_.Put(0, 4,
              FunctionV1{.operations = {3, 2, 1},
                         .timed_operations = {3, 0, 1},
                         .duration = {kForged, 2, kMostHistogramCount + 1}});
  writer_.Put(0, 1, SizeHistogramV1{.function = 4, .size_class = 0, .duration = {~uint64_t{0}, 2}});
  EXPECT_EQ(Read().duration_by_size[0].counts.at(0), kMostHistogramCount);
  EXPECT_EQ(Read(false).duration[0], kMostHistogramCount);
  EXPECT_EQ(Read(false).duration[1], 2u);
  EXPECT_EQ(Read(false).duration[2], kMostHistogramCount);
}

TEST_F(DurationsBySizeTest, AreLeftOutWhereATimedSizeHasNoHistogram) {
  writer_.Put(0, 4,
              FunctionV1{.operations = {3, 2, 1},
                         .timed_operations = {3, 1, 1},
                         .busy_ns = {60, 5, 70},
                         .duration = {1, 2, 1, 1}});
  const FunctionSnapshot function = Read();
  EXPECT_FALSE(IsSplit(function));
  EXPECT_EQ(function.duration[3], 1u);
}

TEST_F(DurationsBySizeTest, AreIgnoredWithAnOwnerThatDoesNotExist) {
  for (const uint64_t owner : {uint64_t{1}, uint64_t{65536 + 11 * 256}, uint64_t{65536 + 6},
                               uint64_t{1} << 17 | uint64_t{65536 + 4 * 256}, kHuge}) {
    writer_.PutWord(SegmentWriterV1::SizeHistogramAt(writer_.SlotAt(0), 1), owner);
    EXPECT_FALSE(IsSplit(Read())) << owner;
  }
}

TEST_F(DurationsBySizeTest, AreNotLookedForInASegmentBefore13) {
  SegmentWriterV1 before(2);
  before.Put(ProcessV1{});
  before.Put(0, CommunicatorV1{});
  before.Put(0, 4, FunctionV1{.operations = {1}, .timed_operations = {1}, .duration = {1}});
  before.Publish();
  const SegmentRead read = ParseSegment(before.bytes(), 0, {.now = kNow, .splits_durations = true});
  const FunctionSnapshot& function = read.process.value().communicators.at(0).functions[4];
  EXPECT_FALSE(IsSplit(function));
  EXPECT_EQ(function.duration[0], 1u);
}

TEST_F(CommunicatorReaderTest, TakesProgressInTheFutureForProgressNow) {
  writer_.Put(0, 4, FunctionV1{.last_start_ns = kHuge});
  EXPECT_EQ(Communicator().last_progress_realtime_ns, kNow.realtime_ns);
  EXPECT_EQ(Communicator().last_progress_monotonic_ns, kNow.monotonic_ns);
}

TEST_F(CommunicatorReaderTest, HasNoProgressBeforeTheFirstOperation) {
  EXPECT_EQ(Communicator().last_progress_realtime_ns, 0);
  EXPECT_EQ(Communicator().last_progress_monotonic_ns, 0);
}

TEST_F(CommunicatorReaderTest, KeepsTheMonotonicTimeOfProgress) {
  writer_.Put(0, 4, FunctionV1{.last_start_ns = 17});
  EXPECT_EQ(Communicator().last_progress_monotonic_ns, 17);
}

TEST_F(CommunicatorReaderTest, CountsOperationsOfWhichNobodySeesTheEnd) {
  constexpr uint64_t kUntimedAllReduce = 4 | layout::kUntimedFlag;
  writer_.Put(0, CommunicatorV1{.timing_source = kKernel});
  writer_.Put(0, 4, FunctionV1{.operations = {3}});
  writer_.Put(0, InFlightV1{.ticket = 1, .function = kUntimedAllReduce});
  writer_.Put(0, InFlightV1{.ticket = 2, .function = kUntimedAllReduce});
  writer_.Put(
      0, InFlightV1{
             .ticket = 3, .function = kUntimedAllReduce, .parts_announced = 2});  // proxies report
  EXPECT_EQ(Communicator().unseen_operations, 2u);
  EXPECT_FALSE(Communicator().completion_is_known);
  EXPECT_EQ(Communicator().in_flight.size(), 1u);
}

TEST_F(CommunicatorReaderTest, ListsWhatIsInFlightOldestFirst) {
  writer_.Put(0, InFlightV1{.ticket = 513, .sequence = 3});  // in the first entry
  writer_.Put(0, InFlightV1{.ticket = 511, .sequence = 1});
  writer_.Put(0, InFlightV1{.ticket = 512, .sequence = 2});
  const CommunicatorSnapshot communicator = Communicator();
  ASSERT_EQ(communicator.in_flight.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(communicator.in_flight[i].sequence, i + 1);
}

TEST_F(CommunicatorReaderTest, IgnoresATicketThatDoesNotBelongToItsEntry) {
  writer_.Put(0, InFlightV1{.ticket = 7});
  writer_.PutWord(writer_.InFlightAt(0, 6), 8);
  EXPECT_TRUE(Communicator().in_flight.empty());
}

TEST_F(CommunicatorReaderTest, TakesAnUnknownFunctionForOther) {
  writer_.Put(0, InFlightV1{.ticket = 1, .function = 11});
  EXPECT_EQ(Communicator().in_flight.at(0).function, Function::kOther);
}

TEST_F(CommunicatorReaderTest, CountsAsAnnouncedAtLeastWhatIsDone) {
  writer_.Put(
      0, InFlightV1{.ticket = 1, .parts_announced = 1, .parts_done = 3, .last_part_ns = kNowNs});
  EXPECT_EQ(Communicator().in_flight.at(0).parts_announced, 3u);
  EXPECT_EQ(Communicator().in_flight.at(0).parts_done, 3u);
}

TEST_F(CommunicatorReaderTest, CountsAQuietCollectiveAsCompleteAndSaysWhenItWillBe) {
  writer_.Put(0, 4, FunctionV1{.operations = {2}, .completed = 1});
  writer_.Put(0, InFlightV1{.ticket = 2,
                            .function = 4,
                            .parts_announced = 2,
                            .parts_done = 2,
                            .last_part_ns = kNowNs - kSecond + 10});
  const SegmentRead read = Read();
  EXPECT_EQ(read.process->communicators.at(0).in_flight.size(), 1u);
  EXPECT_EQ(read.process->communicators.at(0).completed_sequence, 1u);
  EXPECT_EQ(read.stale_at_ns, kNowNs + 11);

  Moment later = kNow;
  later.monotonic_ns += 11;
  const SegmentRead after = ParseSegment(writer_.bytes(), 0, {.now = later});
  EXPECT_TRUE(after.process->communicators.at(0).in_flight.empty());
  EXPECT_EQ(after.process->communicators.at(0).completed_sequence, 2u);
  EXPECT_EQ(after.stale_at_ns, kNever);
}

TEST_F(CommunicatorReaderTest, LeavesAQuietSendOutOfTheSequenceOfCollectives) {
  writer_.Put(0, 4, FunctionV1{.operations = {2}});
  writer_.Put(
      0, InFlightV1{
             .ticket = 1, .function = 8, .parts_announced = 1, .parts_done = 1, .last_part_ns = 1});
  EXPECT_TRUE(Communicator().in_flight.empty());
  EXPECT_EQ(Communicator().completed_sequence, 0u);
}

TEST_F(CommunicatorReaderTest, HasNothingInFlightOnAFinalizedCommunicator) {
  writer_.Put(0, CommunicatorV1{.state = 3});
  writer_.Put(0, 4, FunctionV1{.operations = {2}});
  writer_.Put(0, InFlightV1{.ticket = 1, .function = 4, .parts_announced = 4});
  writer_.Put(0, InFlightV1{.ticket = 2,
                            .function = 4,
                            .parts_announced = 1,
                            .parts_done = 1,
                            .last_part_ns = kNowNs});
  EXPECT_TRUE(Communicator().in_flight.empty());
  EXPECT_EQ(Communicator().completed_sequence, 1u);
}

TEST_F(CommunicatorReaderTest, KnowsNothingOfCompletionOfWhatWasGivenUpAtFinalize) {
  writer_.Put(0, CommunicatorV1{.state = 3, .timing_source = kKernel});
  writer_.Put(0, 4, FunctionV1{.operations = {6}});
  EXPECT_FALSE(Communicator().completion_is_known);
  writer_.Put(0, 4, FunctionV1{.operations = {6}, .completed = 6});
  EXPECT_TRUE(Communicator().completion_is_known);
}

TEST_F(CommunicatorReaderTest, KnowsNothingOfCompletionWithoutTiming) {
  writer_.Put(0, CommunicatorV1{.timing_source = kNone});
  writer_.Put(0, 4, FunctionV1{.operations = {2}, .completed = 1});
  writer_.Put(0, InFlightV1{.ticket = 1, .function = 4, .parts_announced = 4});
  EXPECT_FALSE(Communicator().completion_is_known);
  EXPECT_TRUE(Communicator().in_flight.empty());
}

TEST_F(CommunicatorReaderTest, KnowsOfCompletionByProxyOnceSomethingCrossedTheNetwork) {
  writer_.Put(0, CommunicatorV1{.timing_source = kProxy});
  writer_.Put(0, 4, FunctionV1{.operations = {2}});
  writer_.Put(0, InFlightV1{.ticket = 1, .function = 4});
  EXPECT_FALSE(Communicator().completion_is_known);
  EXPECT_TRUE(Communicator().in_flight.empty());

  writer_.Put(0,
              InFlightV1{.ticket = 2, .function = 4, .parts_announced = 2, .last_part_ns = kNowNs});
  EXPECT_TRUE(Communicator().completion_is_known);
  EXPECT_EQ(Communicator().in_flight.size(), 1u);

  // Regression: proxy operations have no durations, so nothing else was left of one that is over.
  writer_.PutWord(writer_.InFlightAt(0, 1), 0);
  writer_.Put(0, 4, FunctionV1{.operations = {2}, .completed = 1});
  EXPECT_TRUE(Communicator().completion_is_known);
}

// Regression: the ring of operations in flight had come round, the plugin had counted the oldest
// ones as complete to make room, and a hang within a node looked idle.
TEST_F(CommunicatorReaderTest, KnowsNothingOfCompletionByProxyWhereOperationsWereDroppedUnseen) {
  writer_.Put(0, CommunicatorV1{.timing_source = kProxy});
  writer_.Put(0, 4, FunctionV1{.operations = {1008}, .completed = 496});
  for (uint64_t ticket = 497; ticket <= 1008; ++ticket)
    writer_.Put(0, InFlightV1{.ticket = ticket, .function = 4});
  EXPECT_FALSE(Communicator().completion_is_known);
  EXPECT_TRUE(Communicator().in_flight.empty());
}

TEST_F(CommunicatorReaderTest, MakesTextValid) {
  writer_.Put(0, CommunicatorV1{.name = std::string(128, 'x'), .gpu_uuid = "GPU\xff"});
  EXPECT_EQ(Communicator().name, std::string(128, 'x'));
  EXPECT_EQ(Communicator().gpu_uuid, "GPU?");
}

}  // namespace
}  // namespace nccl_exporter::collector
