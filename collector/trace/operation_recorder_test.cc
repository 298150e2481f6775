// SPDX-License-Identifier: Apache-2.0
// Reads of rings while a writer goes on: each operation once, and every loss counted.
#include "collector/trace/operation_recorder.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "collector/testing/lock_holder.h"
#include "collector/testing/table_fixture.h"

namespace nccl_exporter::collector {
namespace {

constexpr uint64_t kEntries = SegmentWriterV1::kCompletionEntries;
constexpr int64_t kMs = 1'000'000;

class OperationRecorderTest : public TableFixture {
 protected:
  OperationRecorderTest() {
    writer_.Put(
        ProcessV1{.pid = 7, .uid = ::getuid(), .identity = {{"RANK", "3"}, {"WORLD_SIZE", "4"}}});
    Begin(0);
    writer_.Publish();
    writer_.WriteTo(Path("a.seg"));
    process_.emplace(Path("a.seg"));
  }

  // A communicator that is created now, in the slot.
  void Begin(size_t slot, uint64_t generation = 1) {
    writer_.Put(slot,
                CommunicatorV1{.generation = generation,
                               .id = 0xabc,
                               .ranks = 2,
                               .rank = 1,
                               .api_version = 6,
                               .created_realtime_ns = static_cast<uint64_t>(now_.realtime_ns),
                               .created_monotonic_ns = static_cast<uint64_t>(now_.monotonic_ns),
                               .gpu_uuid = "GPU-1"});
  }
  // Operations that are called, run and delivered now. The tickets are also the sequence numbers.
  void Complete(uint64_t first, uint64_t last, size_t slot = 0) {
    for (uint64_t ticket = first; ticket <= last; ++ticket) {
      const auto now = static_cast<uint64_t>(now_.monotonic_ns);
      writer_.Put(slot, CompletionV1{.ticket = ticket,
                                     .function = 4,
                                     .sequence = ticket,
                                     .call_ns = now - 3,
                                     .start_ns = 1000 + ticket,
                                     .stop_ns = 2000 + ticket,
                                     .delivered_ns = now,
                                     .bytes = 64 * ticket});
    }
  }
  void Look(OperationRecorder& recorder) {
    writer_.WriteTo(Path("a.seg"));
    const SegmentLooks looks = Refresh(table_, now_);
    recorder.Follow(table_.Read(looks, now_), looks, now_);
  }
  void Read(OperationRecorder& recorder) {
    writer_.WriteTo(Path("a.seg"));
    recorder.Read();
  }
  static std::vector<uint64_t> SequencesOf(const TracedCommunicator& communicator) {
    std::vector<uint64_t> sequences;
    for (const TracedOperation& operation : communicator.operations)
      sequences.push_back(operation.sequence);
    return sequences;
  }
  static std::vector<uint64_t> From(uint64_t first, uint64_t last) {
    std::vector<uint64_t> numbers;
    for (uint64_t number = first; number <= last; ++number) numbers.push_back(number);
    return numbers;
  }

  SegmentWriterV1 writer_{4};
  std::optional<LockHolder> process_;  // that writes the segment
};

TEST_F(OperationRecorderTest, HasEachOperationOfTheWindowOnceWithItsTimes) {
  Complete(1, 5);  // before the window
  Advance(std::chrono::milliseconds(1));
  OperationRecorder recorder(now_.monotonic_ns, true);
  Look(recorder);
  Read(recorder);
  Complete(6, 8);
  Read(recorder);
  Complete(9, 9);
  Advance(std::chrono::milliseconds(1));
  Look(recorder);
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  ASSERT_EQ(trace.processes.size(), 1u);
  EXPECT_EQ(trace.processes[0].global_rank, "3");
  const TracedCommunicator& communicator = trace.processes[0].communicators.at(0);
  EXPECT_EQ(SequencesOf(communicator), From(6, 9));
  EXPECT_EQ(communicator.overwritten, 0u);
  EXPECT_EQ(communicator.whole_since_ns, trace.begin_ns);
  EXPECT_EQ(communicator.operations[0], (TracedOperation{.function = Function::kAllReduce,
                                                         .sequence = 6,
                                                         .call_ns = trace.begin_ns - 3,
                                                         .start_ns = 1006,
                                                         .stop_ns = 2006,
                                                         .delivered_ns = trace.begin_ns,
                                                         .bytes = 384,
                                                         .members = 1}));
  EXPECT_EQ(trace.end_ns - trace.begin_ns, kMs);
}

TEST_F(OperationRecorderTest, CountsWhatWasOverwrittenBetweenTwoReads) {
  Complete(1, 5);
  Advance(std::chrono::milliseconds(1));
  OperationRecorder recorder(now_.monotonic_ns, true);
  Look(recorder);
  Read(recorder);
  Complete(6, 2000);
  Look(recorder);
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  const TracedCommunicator& communicator = trace.processes.at(0).communicators.at(0);
  EXPECT_EQ(SequencesOf(communicator), From(2000 - kEntries + 1, 2000));
  EXPECT_EQ(communicator.operations.size() + communicator.overwritten, 1995u);
}

TEST_F(OperationRecorderTest, CountsWhatACommunicatorOfTheWindowLostBeforeItWasFound) {
  OperationRecorder recorder(now_.monotonic_ns, true);
  Look(recorder);
  Read(recorder);  // its ring is empty
  Complete(1, 700);
  Advance(std::chrono::milliseconds(1));
  Begin(1);
  Complete(1, 600, 1);
  Look(recorder);
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  const auto& communicators = trace.processes.at(0).communicators;
  ASSERT_EQ(communicators.size(), 2u);
  EXPECT_EQ(communicators[0].overwritten, 700 - kEntries);
  EXPECT_EQ(communicators[1].overwritten, 600 - kEntries);
}

TEST_F(OperationRecorderTest, OfASingleLookSaysHowFarTheRingReachesBack) {
  const int64_t begin_ns = now_.monotonic_ns;
  Advance(std::chrono::milliseconds(5));
  Begin(1);
  Complete(1, 3, 1);  // all of it is in the ring
  OperationRecorder long_window(begin_ns - 60'000 * kMs, false), short_window(begin_ns, false);
  Complete(1, 10);
  Advance(std::chrono::milliseconds(5));
  Complete(11, 600);
  Look(long_window);
  Read(long_window);
  const NodeTrace trace = long_window.Finish();
  const auto& communicators = trace.processes.at(0).communicators;
  EXPECT_EQ(SequencesOf(communicators.at(0)), From(600 - kEntries + 1, 600));
  EXPECT_EQ(communicators.at(1).overwritten, 0u);
  EXPECT_EQ(communicators.at(1).whole_since_ns, trace.begin_ns);

  Advance(std::chrono::seconds(2));
  Complete(601, 610);
  OperationRecorder latest(now_.monotonic_ns - 1000 * kMs, false);
  Look(latest);
  Read(latest);
  EXPECT_EQ(SequencesOf(latest.Finish().processes.at(0).communicators.at(0)), From(601, 610));
}

TEST_F(OperationRecorderTest, HasAnOperationInFlightOnceThoughItCompletesMeanwhile) {
  OperationRecorder recorder(now_.monotonic_ns, true);
  Complete(1, 1);
  writer_.Put(0, 4, FunctionV1{.operations = {3}, .timed_operations = {1}, .completed = 1});
  for (const uint64_t sequence : {2, 3}) {
    writer_.Put(0, InFlightV1{.ticket = sequence,
                              .function = 4,
                              .sequence = sequence,
                              .start_ns = static_cast<uint64_t>(now_.monotonic_ns) - 3,
                              .bytes = 128,
                              .parts_announced = 4,
                              .parts_done = 1});
  }
  Look(recorder);
  Complete(2, 2);  // after the look that ends the window
  Advance(std::chrono::milliseconds(1));
  Complete(3, 3, 1);  // of a slot that is not followed
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  const TracedCommunicator& communicator = trace.processes.at(0).communicators.at(0);
  EXPECT_EQ(SequencesOf(communicator), From(1, 2));
  ASSERT_EQ(communicator.in_flight.size(), 1u);
  EXPECT_EQ(communicator.in_flight[0].sequence, 3u);
  EXPECT_EQ(communicator.in_flight[0].call_ns, trace.end_ns - 3);
  EXPECT_EQ(communicator.in_flight[0].parts_done, 1u);
  ASSERT_TRUE(communicator.started);
  EXPECT_EQ(communicator.started->at(4), 3u);
}

TEST_F(OperationRecorderTest, HasTheOperationsOfAKilledProcess) {
  Complete(1, 2);
  writer_.Put(0, 4, FunctionV1{.operations = {3}, .timed_operations = {2}, .completed = 2});
  writer_.Put(0, InFlightV1{.ticket = 3,
                            .function = 4,
                            .sequence = 3,
                            .start_ns = static_cast<uint64_t>(now_.monotonic_ns),
                            .parts_announced = 4});
  writer_.WriteTo(Path("a.seg"));
  process_->Kill();
  Advance(std::chrono::seconds(10));
  OperationRecorder recorder(now_.monotonic_ns - 30'000 * kMs, false);
  Look(recorder);
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  EXPECT_FALSE(trace.processes.at(0).is_alive);
  const TracedCommunicator& communicator = trace.processes[0].communicators.at(0);
  EXPECT_EQ(SequencesOf(communicator), From(1, 2));
  ASSERT_EQ(communicator.in_flight.size(), 1u);
  EXPECT_EQ(communicator.in_flight[0].sequence, 3u);
}

TEST_F(OperationRecorderTest, ASlotThatChangesHandsIsTwoCommunicators) {
  OperationRecorder recorder(now_.monotonic_ns, true);
  Look(recorder);
  Complete(1, 2);
  Read(recorder);
  Complete(3, 4);
  Begin(0, 2);
  for (uint64_t entry = 0; entry < kEntries; ++entry)
    writer_.PutWord(writer_.CompletionAt(0, entry), 0);
  Complete(1, 1);
  Read(recorder);  // of the next generation: not the former communicator's
  Look(recorder);
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  const auto& communicators = trace.processes.at(0).communicators;
  ASSERT_EQ(communicators.size(), 2u);
  EXPECT_EQ(SequencesOf(communicators[0]), From(1, 2));
  EXPECT_EQ(SequencesOf(communicators[1]), From(1, 1));
}

TEST_F(OperationRecorderTest, LeavesOutAndCountsWhatIsBeyondItsLimit) {
  OperationRecorder recorder(now_.monotonic_ns, true, 4);
  Look(recorder);
  Complete(1, 3);
  Read(recorder);
  Complete(4, 6);
  Read(recorder);
  const NodeTrace trace = recorder.Finish();
  const TracedCommunicator& communicator = trace.processes.at(0).communicators.at(0);
  EXPECT_EQ(SequencesOf(communicator), From(1, 4));
  EXPECT_EQ(communicator.beyond_limit, 2u);
}

TEST_F(OperationRecorderTest, CountsUntimedOperationsAndLossesOfTheWindow) {
  writer_.Put(ProcessV1{.pid = 7, .uid = ::getuid(), .losses = {0, 5}});
  writer_.Put(0, 4, FunctionV1{.operations = {20}, .timed_operations = {9}, .completed = 10});
  Advance(std::chrono::milliseconds(1));  // the communicator is older than the window
  OperationRecorder recorder(now_.monotonic_ns, true);
  Look(recorder);
  writer_.Put(ProcessV1{.pid = 7, .uid = ::getuid(), .losses = {0, 8}});
  writer_.Put(0, 4, FunctionV1{.operations = {20}, .timed_operations = {12}, .completed = 17});
  Look(recorder);
  const NodeTrace trace = recorder.Finish();
  EXPECT_EQ(trace.processes.at(0).communicators.at(0).untimed, 4u);
  EXPECT_EQ(trace.processes.at(0).losses[1], 3u);
}

// Its times are to be confirmed when the window ends, or it stays without them.
TEST_F(OperationRecorderTest, AnOperationThatIsCompleteHasTimesOrCountsAsUntimed) {
  writer_.Put(0, 4, FunctionV1{.operations = {2}, .timed_operations = {0}, .completed = 0});
  Advance(std::chrono::milliseconds(1));
  OperationRecorder recorder(now_.monotonic_ns, true);
  Look(recorder);
  Read(recorder);
  writer_.Put(0, 4, FunctionV1{.operations = {2}, .timed_operations = {0}, .completed = 2});
  Look(recorder);
  Complete(1, 1);
  writer_.Put(0, 4, FunctionV1{.operations = {2}, .timed_operations = {1}, .completed = 2});
  Read(recorder);
  recorder.Count(table_.Read(Refresh(table_, now_), now_));
  const NodeTrace trace = recorder.Finish();
  const TracedCommunicator& communicator = trace.processes.at(0).communicators.at(0);
  EXPECT_EQ(communicator.operations.size(), 1u);
  EXPECT_EQ(communicator.untimed, 1u);
}

}  // namespace
}  // namespace nccl_exporter::collector
