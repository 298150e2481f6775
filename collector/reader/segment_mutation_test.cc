// SPDX-License-Identifier: Apache-2.0
// Damaged segments: the reader returns a reason, or a snapshot that keeps its guarantees.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <vector>

#include "collector/reader/segment_reader.h"
#include "collector/testing/memory_source.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

using V1 = SegmentWriterV1;

constexpr Moment kNow{.realtime_ns = 1'700'000'000'000'000'000, .monotonic_ns = 500'000'000'000};
constexpr int kMutations = 2000;
constexpr size_t kSlots = 3;

V1 ValidSegment() {
  V1 writer(kSlots, V1::kHeaderBytes, V1::kSlotBytesOf13);
  writer.PutWord(V1::NetworkShareAt(writer.SlotAt(0)), 1000);
  writer.Put(
      ProcessV1{.start_realtime_ns = 1, .host_name = "node", .identity = {{"POD_NAME", "p"}}});
  writer.Put(0, CommunicatorV1{.ranks = 8, .name = "dp"});
  writer.Put(0, 4, FunctionV1{.operations = {1, 2, 3}, .completed = 5});
  for (uint64_t ticket = 600; ticket < 700; ++ticket) {
    writer.Put(0, InFlightV1{.ticket = ticket,
                             .function = 4,
                             .start_ns = 1,
                             .parts_announced = 2,
                             .last_part_ns = 2});
  }
  writer.Put(
      1, CommunicatorV1{.state = 3, .timing_source = 3, .closed_monotonic_ns = 400'000'000'000});
  writer.Put(2, CommunicatorV1{});
  writer.Put(2, 4, FunctionV1{.operations = {1}});
  writer.Publish();
  return writer;
}

void ExpectPromisesKept(const SegmentRead& read) {
  EXPECT_FALSE(read.process && read.fault);
  if (!read.process) return;
  EXPECT_LE(read.process->communicators.size(), kSlots);
  EXPECT_LE(read.process->identity.size(), 32u);
  for (const CommunicatorSnapshot& communicator : read.process->communicators) {
    EXPECT_LE(communicator.completed_sequence, communicator.started_sequence);
    EXPECT_LE(communicator.in_flight.size(), V1::kInFlightEntries);
    EXPECT_TRUE(communicator.completion_is_known || communicator.in_flight.empty());
    EXPECT_LT(static_cast<size_t>(communicator.timing_source), kTimingSources.size());
    EXPECT_LT(static_cast<size_t>(communicator.timing_reason), kTimingReasons.size());
    EXPECT_LE(communicator.last_progress_realtime_ns, kNow.realtime_ns);
    for (const InFlightOperation& operation : communicator.in_flight) {
      EXPECT_LT(static_cast<int>(operation.function), kFunctionCount);
      EXPECT_LE(operation.parts_done, operation.parts_announced);
      EXPECT_LE(operation.start_realtime_ns, kNow.realtime_ns);
      EXPECT_GE(operation.peer, -1);
    }
  }
}

// Most mutations hit fields that steer the reader: of the header, of the slots' heads, of entries
// in flight.
size_t PlaceOfDamage(const V1& writer, std::mt19937_64& random) {
  const size_t slot = random() % kSlots;
  switch (random() % 4) {
    case 0:
      return 8 * (random() % 16);
    case 1:
      return writer.SlotAt(slot) + 8 * (random() % 16);
    case 2:
      return writer.InFlightAt(slot, random() % V1::kInFlightEntries) + 8 * (random() % 8);
    default:
      return 8 * (random() % (writer.bytes().size() / 8));
  }
}

uint64_t Damage(std::mt19937_64& random) {
  constexpr std::array<uint64_t, 8> kEdges{
      0, 1, 255, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}, 4096};
  return random() % 2 == 0 ? kEdges[random() % kEdges.size()] : random() >> random() % 64;
}

TEST(SegmentMutationTest, SurvivesDamagedWords) {
  std::mt19937_64 random(20240229);
  const V1 valid = ValidSegment();
  ExpectPromisesKept(ParseSegment(valid.bytes(), 0, {.now = kNow}));
  int usable = 0;
  for (int i = 0; i < kMutations; ++i) {
    V1 damaged = valid;
    for (uint64_t words = 1 + random() % 8; words != 0; --words) {
      const size_t place = PlaceOfDamage(valid, random);
      damaged.PutWord(place, Damage(random));
    }
    const SegmentRead read = ParseSegment(damaged.bytes(), 0, {.now = kNow});
    ExpectPromisesKept(read);
    usable += read.process.has_value();
  }
  EXPECT_GT(usable, kMutations / 10);  // otherwise too few inputs get past the header
}

TEST(SegmentMutationTest, SurvivesEachLengthOfTheHeaderAndSomeOfTheRest) {
  const V1 valid = ValidSegment();
  const std::span<const std::byte> bytes = valid.bytes();
  for (size_t length = 0; length < bytes.size(); length += length < 300 ? 1 : 997) {
    const SegmentRead read = ParseSegment(bytes.first(length), 0, {.now = kNow});
    EXPECT_FALSE(read.process) << length;
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
