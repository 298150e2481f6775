// SPDX-License-Identifier: Apache-2.0
// The collector as a whole: with its thread, and with many callers.
#include "collector/collector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "collector/segments/segment_table.h"
#include "collector/testing/lock_holder.h"
#include "collector/testing/scratch_directory.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector {
namespace {

void WriteSegment(const std::string& path, uint64_t operations) {
  SegmentWriterV1 writer(2);
  writer.Put(ProcessV1{.uid = ::getuid()});
  writer.Put(0, CommunicatorV1{});
  writer.Put(0, 4, FunctionV1{.operations = {operations}});
  writer.Publish();
  writer.WriteTo(path);
}

// Number of times that this process has read from files so far; 0 if the kernel does not count
// them.
uint64_t ReadCalls() {
  std::ifstream file("/proc/self/io");
  std::string name;
  uint64_t number = 0;
  while (file >> name >> number) {
    if (name == "syscr:") return number;
  }
  return 0;
}

class CollectorTest : public testing::Test {
 protected:
  CollectorOptions Options() const { return {.directories = {scratch_.path()}}; }

  ScratchDirectory scratch_;
};

TEST_F(CollectorTest, TakesASnapshotWithoutItsThread) {
  Collector collector(Options());
  WriteSegment(scratch_.File("x.seg"), 3);
  const std::shared_ptr<const NodeSnapshot> snapshot = collector.Snapshot();
  ASSERT_EQ(snapshot->processes.size(), 1u);
  EXPECT_EQ(snapshot->processes[0].communicators.at(0).started_sequence, 3u);
}

// Regression: what reads counters and what compares arrivals each looked at every slot.
TEST_F(CollectorTest, ASnapshotLooksAtEachSlotOnce) {
  if (ReadCalls() == 0) GTEST_SKIP() << "/proc/self/io does not say how often files are read here";
  constexpr size_t kSlots = 500;
  SegmentWriterV1 writer(kSlots + 1);
  writer.Put(ProcessV1{.uid = ::getuid()});
  for (size_t slot = 0; slot < kSlots; ++slot) {
    writer.Put(slot, CommunicatorV1{.state = 3, .id = slot, .closed_monotonic_ns = 1});
  }
  writer.Publish();
  writer.WriteTo(scratch_.File("x.seg"));
  const LockHolder process(scratch_.File("x.seg"));
  Collector collector({.directories = {scratch_.path()}, .retention = std::chrono::nanoseconds(1)});
  ASSERT_EQ(collector.Snapshot()->segments.live, 1u);
  const uint64_t before = ReadCalls();
  collector.Snapshot();
  EXPECT_LT(ReadCalls() - before, kSlots + 50);
}

// The clock is read once for each part that a snapshot waits for, and once more where it begins.
TEST_F(CollectorTest, WaitsForAWholeListingOnlyAtTheFirstSnapshotAndWithoutItsThread) {
  constexpr int kParts = 5;
  WriteSegment(scratch_.File("x.seg"), 3);
  for (int64_t i = 0; i < kParts * kNamesPerPart; ++i)
    std::ofstream{scratch_.File(std::to_string(i))};
  const std::thread::id caller = std::this_thread::get_id();
  int parts = 0;
  int64_t later_ns = 0;
  const auto clock = [&] {
    Moment now = Now();
    if (std::this_thread::get_id() == caller) {
      ++parts;
      now.monotonic_ns += later_ns;
    }
    return now;
  };
  Collector alone(Options(), clock);
  EXPECT_EQ(alone.Snapshot()->processes.size(), 1u);
  EXPECT_GE(parts, kParts);

  Collector collector(Options(), clock);
  collector.Start();
  EXPECT_EQ(collector.Snapshot()->processes.size(), 1u);
  parts = 0;
  later_ns = std::chrono::nanoseconds(std::chrono::minutes(1)).count();  // the next listing is due
  EXPECT_EQ(collector.Snapshot()->processes.size(), 1u);
  EXPECT_EQ(parts, 1);
}

TEST_F(CollectorTest, UnlinksTheFilesOfTheDeadWhileNobodyScrapes) {
  WriteSegment(scratch_.File("x.seg"), 3);
  std::atomic<int64_t> offset_ns{0};
  Collector collector(Options(), [&] {
    Moment now = Now();
    now.realtime_ns += offset_ns;
    now.monotonic_ns += offset_ns;
    return now;
  });
  collector.Start();
  collector.Snapshot();
  offset_ns = std::chrono::nanoseconds(std::chrono::minutes(6)).count();
  WriteSegment(scratch_.File("wakes the thread.seg"), 1);
  while (std::filesystem::exists(scratch_.File("x.seg")))
    std::this_thread::yield();  // a test that hangs has failed
}

TEST_F(CollectorTest, ServesCallersOnManyThreadsWhileSegmentsComeAndGo) {
  WriteSegment(scratch_.File("x.seg"), 3);
  const LockHolder writer(scratch_.File("x.seg"));
  Collector collector(Options());
  collector.Start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 50; ++call) {
        const std::shared_ptr<const NodeSnapshot> snapshot = collector.Snapshot();
        EXPECT_EQ(snapshot->segments.live, 1u);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const std::string path = scratch_.File(std::to_string(i) + ".seg");
    WriteSegment(path, 1);
    if (i % 2 == 0) std::filesystem::remove(path);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CollectorTest, StopsWithoutWaitingForItsNextRound) {
  for (int i = 0; i < 50; ++i) {  // at a round a second it would take most of a minute
    Collector collector(Options());
    collector.Start();
  }
}

}  // namespace
}  // namespace nccl_exporter::collector
