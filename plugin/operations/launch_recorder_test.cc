// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/launch_recorder.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_exporter::plugin {

// Plays a thread that was interrupted while it judged and recorded a launch.
class CommunicatorPeer {
 public:
  static void HoldRecording(LaunchRecorder& recorder, bool is_held) {
    recorder.is_recording_.store(is_held);
  }
};

namespace {

class LaunchRecorderTest : public testing::Test {
 protected:
  LaunchRecorderTest() {
    recorder_->Open({.source = TimingSource::kKernelCpu,
                     .ranks = 8,
                     .slot = slot_.get(),
                     .header = header_.get()});
  }

  // An operation with that ticket is started, done and handed over; recorded where it `counts`.
  void Do(uint64_t ticket, bool counts = false) {
    Operation& operation = recorder_->At(ticket);
    operation.function.store(Function::kAllReduce);
    operation.is_not_recorded.store(!counts);
    StoreRelease(operation.state, PhaseWord(ticket, Phase::kDone));
    recorder_->RecordMembers(ticket, 1, nullptr, 1000);
  }
  uint64_t Completed(Function function) {
    return LoadRelaxed(slot_->functions[static_cast<size_t>(function)].completed);
  }

  std::unique_ptr<layout::SegmentHeader> header_ = std::make_unique<layout::SegmentHeader>();
  std::unique_ptr<layout::CommunicatorSlot> slot_ = std::make_unique<layout::CommunicatorSlot>();
  std::unique_ptr<LaunchRecorder> recorder_ = std::make_unique<LaunchRecorder>();
};

TEST_F(LaunchRecorderTest, AnUnfollowedOperationIsOverWhenALaterOneIs) {
  recorder_->NoteUnfollowed(Function::kBroadcast, 10);
  Do(10);
  EXPECT_EQ(Completed(Function::kBroadcast), 0u);
  Do(11);
  EXPECT_EQ(Completed(Function::kBroadcast), 1u);
  Do(12);
  EXPECT_EQ(Completed(Function::kBroadcast), 1u);
}

// Two threads read the latest ticket, and the one with the older one is interrupted.
TEST_F(LaunchRecorderTest, AnOldTicketThatIsNotedLateEndsNoLaterOperation) {
  recorder_->NoteUnfollowed(Function::kBroadcast, 20);
  recorder_->NoteUnfollowed(Function::kReduce, 10);
  Do(15);
  EXPECT_EQ(Completed(Function::kBroadcast), 0u);
  EXPECT_EQ(Completed(Function::kReduce), 0u);
  Do(21);
  EXPECT_EQ(Completed(Function::kBroadcast), 1u);
  EXPECT_EQ(Completed(Function::kReduce), 1u);
}

TEST_F(LaunchRecorderTest, AThreadThatMissesTheLockLeavesItsCountToTheNextHolder) {
  CommunicatorPeer::HoldRecording(*recorder_, true);
  Do(1, true);
  Do(2, true);
  EXPECT_EQ(Completed(Function::kAllReduce), 0u);
  EXPECT_EQ(recorder_->At(1).state.load(), PhaseWord(1, Phase::kFree)) << "its entry is free";
  CommunicatorPeer::HoldRecording(*recorder_, false);
  Do(3, true);
  EXPECT_EQ(Completed(Function::kAllReduce), 3u);
  Do(4, true);
  EXPECT_EQ(Completed(Function::kAllReduce), 4u) << "each was counted once";
}

TEST_F(LaunchRecorderTest, CountsLeftByAThreadThatMissedTheLockAreAddedAtFinalize) {
  CommunicatorPeer::HoldRecording(*recorder_, true);
  Do(1, true);
  CommunicatorPeer::HoldRecording(*recorder_, false);
  recorder_->Finalize(false, 1000);
  EXPECT_EQ(Completed(Function::kAllReduce), 1u);
}

TEST_F(LaunchRecorderTest, AtFinalizeWhatIsNotFollowedIsOver) {
  recorder_->NoteUnfollowed(Function::kBroadcast, 20);
  recorder_->Finalize(true, 1000);
  EXPECT_EQ(Completed(Function::kBroadcast), 1u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
