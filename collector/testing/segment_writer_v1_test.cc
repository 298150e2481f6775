// SPDX-License-Identifier: Apache-2.0
// Every field of layout 1.0, written and read back. Every later reader of major 1 must pass.
#include "collector/testing/segment_writer_v1.h"

#include <gtest/gtest.h>

#include <numeric>

#include "collector/reader/segment_reader.h"
#include "collector/testing/memory_source.h"

namespace nccl_exporter::collector {
namespace {

constexpr Moment kNow{.realtime_ns = 1'700'000'000'000'000'000, .monotonic_ns = 500'000'000'000};
constexpr uint64_t kUid = 1234;

ProcessSnapshot Parse(const SegmentWriterV1& writer) {
  SegmentRead read = ParseSegment(writer.bytes(), kUid, {.now = kNow});
  EXPECT_FALSE(read.fault) << read.fault->detail;
  EXPECT_TRUE(read.process);
  return read.process.value_or(ProcessSnapshot{});
}

TEST(SegmentWriterV1Test, ReadsBackTheProcess) {
  SegmentWriterV1 writer(1);
  ProcessV1 process{.pid = 4711,
                    .uid = kUid,
                    .start_realtime_ns = 1'600'000'000'000'000'001,
                    .start_monotonic_ns = 77,
                    .retention_ns = 300'000'000'000,
                    .plugin_version = "1.2.3",
                    .host_name = "node-17",
                    .executable = "python3.12",
                    .identity = {{"SLURM_JOB_ID", "99"}, {"POD_NAME", "trainer-0"}},
                    .losses = std::vector<uint64_t>(kLossCount)};
  std::iota(process.losses.begin(), process.losses.end(), 100);
  writer.Put(process);
  writer.Publish();

  const ProcessSnapshot read = Parse(writer);
  EXPECT_EQ(read.pid, process.pid);
  EXPECT_EQ(read.uid, process.uid);
  EXPECT_EQ(read.start_realtime_ns, 1'600'000'000'000'000'001);
  EXPECT_EQ(read.start_monotonic_ns, 77);
  EXPECT_EQ(read.plugin_version, process.plugin_version);
  EXPECT_EQ(read.host_name, process.host_name);
  EXPECT_EQ(read.executable, process.executable);
  EXPECT_EQ(read.identity, process.identity);
  EXPECT_TRUE(std::ranges::equal(read.losses, process.losses));
}

TEST(SegmentWriterV1Test, ReadsBackTheCommunicator) {
  SegmentWriterV1 writer(4);
  writer.Put(ProcessV1{.uid = kUid});
  const CommunicatorV1 communicator{.generation = 9,
                                    .id = 0xfeedfacecafebeef,
                                    .ranks = 64,
                                    .rank = 63,
                                    .nodes = 8,
                                    .api_version = 7,
                                    .nccl_version = 22907,
                                    .event_mask = 0x1fe,
                                    .timing_source = 3,
                                    .timing_reason = 5,
                                    .gpu_index_plus_1 = 8,
                                    .created_realtime_ns = 1'650'000'000'000'000'002,
                                    .name = "data parallel",
                                    .gpu_uuid = "GPU-0102",
                                    .pci_bus_id = "0000:3b:00.0"};
  for (const size_t slot : {0, 1, 2}) writer.Put(slot, communicator);
  writer.Publish();

  const ProcessSnapshot process = Parse(writer);
  ASSERT_EQ(process.communicators.size(), 3u);
  const CommunicatorSnapshot& read = process.communicators[2];
  EXPECT_FALSE(read.is_overflow);
  EXPECT_FALSE(read.is_closed);
  EXPECT_TRUE(read.has_identity);
  EXPECT_EQ(read.slot, 2u);
  EXPECT_EQ(read.generation, communicator.generation);
  EXPECT_EQ(read.id, communicator.id);
  EXPECT_EQ(read.ranks, communicator.ranks);
  EXPECT_EQ(read.rank, communicator.rank);
  EXPECT_EQ(read.nodes, communicator.nodes);
  EXPECT_EQ(read.api_version, 7);
  EXPECT_EQ(read.nccl_version, 22907);
  EXPECT_EQ(read.event_mask, communicator.event_mask);
  EXPECT_EQ(read.timing_source, TimingSource::kProxy);
  EXPECT_EQ(read.timing_reason, TimingReason::kSharedMemoryLow);
  EXPECT_EQ(read.gpu_index, 7);
  EXPECT_EQ(read.created_realtime_ns, 1'650'000'000'000'000'002);
  EXPECT_EQ(read.name, communicator.name);
  EXPECT_EQ(read.gpu_uuid, communicator.gpu_uuid);
  EXPECT_EQ(read.pci_bus_id, communicator.pci_bus_id);
}

// Counts that all differ.
FunctionV1 DistinctCounts(uint64_t first) {
  FunctionV1 counts{.duration = std::vector<uint64_t>(DurationBuckets::kCount),
                    .bandwidth = std::vector<uint64_t>(BandwidthBuckets::kCount)};
  uint64_t next = first;
  for (auto* words : {&counts.operations, &counts.bytes, &counts.timed_operations,
                      &counts.timed_bytes, &counts.busy_ns}) {
    for (uint64_t& word : *words) word = next++;
  }
  for (auto* words : {&counts.duration, &counts.bandwidth}) {
    for (uint64_t& word : *words) word = next++;
  }
  counts.calls = next++;
  counts.bandwidth_sum_kib = next++;
  counts.completed = counts.operations[0];
  return counts;
}

TEST(SegmentWriterV1Test, ReadsBackTheCountsOfEachFunction) {
  SegmentWriterV1 writer(2);
  writer.Put(ProcessV1{.uid = kUid});
  writer.Put(0, CommunicatorV1{});
  for (size_t function = 0; function < kFunctionCount; ++function) {
    writer.Put(0, function, DistinctCounts(1'000'000 * (function + 1)));
  }
  writer.Publish();

  const ProcessSnapshot process = Parse(writer);
  ASSERT_EQ(process.communicators.size(), 1u);
  for (size_t function = 0; function < kFunctionCount; ++function) {
    const FunctionV1 written = DistinctCounts(1'000'000 * (function + 1));
    const FunctionSnapshot& read = process.communicators[0].functions[function];
    EXPECT_EQ(read.calls, written.calls);
    EXPECT_EQ(read.completed, written.completed);
    EXPECT_EQ(read.bandwidth_sum_kib, written.bandwidth_sum_kib);
    for (size_t i = 0; i < kSizeClassCount; ++i) {
      const SizeClassSnapshot expected{.operations = written.operations[i],
                                       .bytes = written.bytes[i],
                                       .timed_operations = written.timed_operations[i],
                                       .timed_bytes = written.timed_bytes[i],
                                       .busy_ns = written.busy_ns[i]};
      EXPECT_EQ(read.sizes[i], expected);
    }
    EXPECT_TRUE(std::ranges::equal(read.duration, written.duration));
    EXPECT_TRUE(std::ranges::equal(read.bandwidth, written.bandwidth));
  }
}

TEST(SegmentWriterV1Test, ReadsBackOperationsInFlight) {
  SegmentWriterV1 writer(2);
  writer.Put(ProcessV1{.uid = kUid});
  writer.Put(0, CommunicatorV1{});
  writer.Put(0, InFlightV1{.ticket = 1025,  // the first place, for the third time
                           .function = 8,
                           .sequence = 44,
                           .start_ns = 499'000'000'000,
                           .bytes = 4096,
                           .parts_announced = 4,
                           .parts_done = 2,
                           .last_part_ns = 499'500'000'000,
                           .peer_plus_1 = 4});
  writer.Publish();

  const ProcessSnapshot process = Parse(writer);
  ASSERT_EQ(process.communicators.size(), 1u);
  ASSERT_EQ(process.communicators[0].in_flight.size(), 1u);
  const InFlightOperation& read = process.communicators[0].in_flight[0];
  EXPECT_EQ(read.function, Function::kSend);
  EXPECT_EQ(read.sequence, 44u);
  EXPECT_EQ(read.start_realtime_ns, kNow.realtime_ns - 1'000'000'000);
  EXPECT_EQ(read.bytes, 4096u);
  EXPECT_EQ(read.peer, 3);
  EXPECT_EQ(read.parts_announced, 4u);
  EXPECT_EQ(read.parts_done, 2u);
}

TEST(SegmentWriterV1Test, ReadsBackProgressAndTheEndOfACommunicator) {
  SegmentWriterV1 writer(2);
  writer.Put(ProcessV1{.uid = kUid});
  writer.Put(0, CommunicatorV1{.state = 3, .closed_monotonic_ns = 400'000'000'000});
  writer.Put(0, 4,
             FunctionV1{.last_start_ns = 100'000'000'000, .operations = {0, 3}, .completed = 2});
  writer.Put(0, 0,
             FunctionV1{.operations = {5}, .completed = 5, .last_completion_ns = 200'000'000'000});
  writer.Put(0, 9, FunctionV1{.operations = {1000}, .completed = 1000});  // a Recv is no collective
  writer.Publish();

  const ProcessSnapshot process = Parse(writer);
  ASSERT_EQ(process.communicators.size(), 1u);
  const CommunicatorSnapshot& read = process.communicators[0];
  EXPECT_TRUE(read.is_closed);
  EXPECT_EQ(read.started_sequence, 8u);
  EXPECT_EQ(read.completed_sequence, 7u);
  EXPECT_FALSE(read.completion_is_known);  // the eighth was given up, or its end could not be seen
  EXPECT_EQ(read.last_progress_realtime_ns, kNow.realtime_ns - 300'000'000'000);
}

}  // namespace
}  // namespace nccl_exporter::collector
