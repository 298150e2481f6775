// SPDX-License-Identifier: Apache-2.0
#include "plugin/sampling/sampler_set.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_exporter::plugin {
namespace {

constexpr int kTimed = 2 | 4 | 64;
constexpr int kUntimed = 2 | 4 | 8;
constexpr int kFrozen = 256;

// A communicator as the set knows it.
struct Member {
  CallGroups groups;
  std::unique_ptr<layout::CommunicatorSlot> slot = std::make_unique<layout::CommunicatorSlot>();
  SamplingReason reason = SamplingReason::kDefault;
  Sampler* sampler = nullptr;

  SamplingState State() const {
    return static_cast<SamplingState>(LoadRelaxed(slot->sampling) & 0xff);
  }
  SamplingReason Reason() const {
    return static_cast<SamplingReason>(LoadRelaxed(slot->sampling) >> 8 & 0xff);
  }
  uint64_t DutyPpm() const { return LoadRelaxed(slot->sampling) >> 32; }
  bool IsFrozenFor(SamplingReason why) const {
    return State() == SamplingState::kFrozen && Reason() == why;
  }
};

class SamplerSetTest : public testing::Test {
 protected:
  // Windows that are closed but for a nanosecond in an hour, from the first group on.
  static constexpr SamplerSet::Settings kAlmostNever{
      .is_wanted = true,
      .windows = {.period_ns = 3'600'000'000'000, .window_ns = 1},
      .learning_ns = 0};

  void SetUp() override { set_->Open(kAlmostNever); }

  void Join(Member& member, int* mask, bool may_change_mask = true) {
    member.sampler = set_->Join(mask, kTimed, may_change_mask, &member.reason);
    set_->Add(member.groups, member.slot.get(), member.sampler, member.reason);
  }
  // A group with one call. `handle`: any number that is the group's own.
  void BeginGroup(Member& member, uint64_t handle) {
    number_ = member.groups.Begin();
    member.sampler->NoteGroup(handle);
    member.groups.NoteCallTime(NowNs());
  }
  void EndGroup(Member& member, uint64_t handle) {
    set_->EndGroup(member.groups, *member.sampler, number_, handle);
  }
  void RunGroup(Member& member, uint64_t handle) {
    BeginGroup(member, handle);
    EndGroup(member, handle);
  }

  std::unique_ptr<SamplerSet> set_ = std::make_unique<SamplerSet>();
  int mask_ = 0;
  int mask_of_other_copy_ = 0;
  uint64_t number_ = 0;
};

TEST_F(SamplerSetTest, SaysWhyACommunicatorIsNotSampled) {
  Member unwanted, of_release, decided;
  set_->Open({});
  Join(unwanted, &mask_);
  EXPECT_EQ(unwanted.Reason(), SamplingReason::kConfigured);
  set_->Open(kAlmostNever);
  Join(of_release, &mask_, false);
  EXPECT_EQ(of_release.Reason(), SamplingReason::kRelease);
  decided.reason = SamplingReason::kOverflow;
  Join(decided, &mask_, false);
  EXPECT_EQ(decided.Reason(), SamplingReason::kOverflow) << "as it was decided before";
  for (const Member* member : {&unwanted, &of_release, &decided}) {
    EXPECT_EQ(member->sampler, nullptr);
    EXPECT_EQ(member->State(), SamplingState::kNone);
  }
  EXPECT_EQ(mask_, 0) << "is not the set's to store";
}

TEST_F(SamplerSetTest, HasOneSamplerForEachCopyOfLibnccl) {
  Member first, second, of_other_copy;
  Join(first, &mask_);
  Join(second, &mask_);
  Join(of_other_copy, &mask_of_other_copy_);
  EXPECT_EQ(first.sampler, second.sampler);
  EXPECT_NE(first.sampler, of_other_copy.sampler);
  EXPECT_EQ(mask_, kTimed);
  EXPECT_EQ(mask_of_other_copy_, kTimed);
  EXPECT_EQ(first.State(), SamplingState::kLearning);
  EXPECT_EQ(first.DutyPpm(), kWholeDutyPpm);
}

TEST_F(SamplerSetTest, SamplesFourCopiesOfLibncclAtMost) {
  int masks[5] = {};
  Member members[5];
  for (int i = 0; i < 5; ++i) Join(members[i], &masks[i]);
  EXPECT_NE(members[3].sampler, nullptr);
  EXPECT_EQ(members[4].sampler, nullptr);
  EXPECT_EQ(members[4].Reason(), SamplingReason::kTooManyLibraries);
}

TEST_F(SamplerSetTest, ChangesTheMaskAtTheEndOfAGroup) {
  Member first, second;
  Join(first, &mask_);
  Join(second, &mask_);
  BeginGroup(first, 1);
  EXPECT_EQ(mask_, kTimed);
  EndGroup(first, 1);
  EXPECT_EQ(mask_, kUntimed);
  for (const Member* member : {&first, &second}) {
    EXPECT_EQ(member->State(), SamplingState::kWindows);
    EXPECT_EQ(member->DutyPpm(), 0u);
  }
}

TEST_F(SamplerSetTest, LeavesTheMaskWhileAnotherCommunicatorHasAGroupOpen) {
  Member first, second;
  Join(first, &mask_);
  Join(second, &mask_);
  second.groups.Begin();
  RunGroup(first, 1);
  EXPECT_EQ(mask_, kTimed);
  EXPECT_EQ(first.State(), SamplingState::kLearning);
}

TEST_F(SamplerSetTest, WaitsForNoGroupOfACommunicatorThatIsFinalizedOrOfAnotherCopy) {
  Member first, finalized, of_other_copy;
  Join(first, &mask_);
  Join(finalized, &mask_);
  Join(of_other_copy, &mask_of_other_copy_);
  finalized.groups.Begin();
  of_other_copy.groups.Begin();
  set_->Leave(finalized.groups);
  RunGroup(first, 1);
  EXPECT_EQ(mask_, kUntimed);
  EXPECT_EQ(mask_of_other_copy_, kTimed);
}

TEST_F(SamplerSetTest, FreezesTheMaskWhenGroupsOfTwoThreadsOverlap) {
  Member first, second;
  Join(first, &mask_);
  Join(second, &mask_);
  BeginGroup(first, 1);
  second.groups.Begin();
  second.sampler->NoteGroup(2);
  EndGroup(first, 1);
  EXPECT_EQ(mask_, kTimed | kFrozen);
  EXPECT_TRUE(first.IsFrozenFor(SamplingReason::kThreads));
  EXPECT_TRUE(second.IsFrozenFor(SamplingReason::kThreads));
}

TEST_F(SamplerSetTest, ShowsTheFirstCallThatFreezesTheMaskToItsCopyAlone) {
  Member first, second, of_other_copy;
  Join(first, &mask_);
  Join(second, &mask_);
  Join(of_other_copy, &mask_of_other_copy_);
  set_->Freeze(*first.sampler, FreezingCall::kSend, first.groups.changes_at_end());
  set_->Freeze(*first.sampler, FreezingCall::kOther, first.groups.changes_at_end());
  EXPECT_TRUE(first.IsFrozenFor(SamplingReason::kPointToPoint));
  EXPECT_TRUE(second.IsFrozenFor(SamplingReason::kPointToPoint));
  EXPECT_EQ(of_other_copy.State(), SamplingState::kLearning);
  RunGroup(first, 1);
  EXPECT_EQ(mask_, kTimed | kFrozen) << "for good";
}

TEST_F(SamplerSetTest, ShowsACommunicatorAsTimedByProxiesOnceTheMaskIsFrozenWithoutKernelEvents) {
  Member member;
  std::atomic_ref<uint64_t>(member.slot->timing_source)
      .store(static_cast<uint64_t>(TimingSource::kKernel));
  Join(member, &mask_);
  RunGroup(member, 1);
  ASSERT_EQ(mask_, kUntimed);
  set_->Freeze(*member.sampler, FreezingCall::kOther, member.groups.changes_at_end());
  EXPECT_TRUE(member.IsFrozenFor(SamplingReason::kGraph));
  EXPECT_EQ(member.slot->timing_source, static_cast<uint64_t>(TimingSource::kProxy));
  EXPECT_EQ(member.slot->timing_reason, static_cast<uint64_t>(TimingReason::kSamplingFrozen));
}

TEST_F(SamplerSetTest, FreezesEveryMaskOnceACommunicatorHasNoSlot) {
  Member first, of_other_copy, later;
  Join(first, &mask_);
  Join(of_other_copy, &mask_of_other_copy_);
  set_->NoteOverflow();
  EXPECT_TRUE(first.IsFrozenFor(SamplingReason::kOverflow));
  EXPECT_TRUE(of_other_copy.IsFrozenFor(SamplingReason::kOverflow));
  int mask_of_third_copy = 0;
  Join(later, &mask_of_third_copy);
  EXPECT_EQ(later.sampler, nullptr);
  EXPECT_EQ(later.Reason(), SamplingReason::kOverflow);
}

TEST_F(SamplerSetTest, TouchesNoMaskOfACopyWhoseLastCommunicatorIsFinalized) {
  Member first, second;
  Join(first, &mask_);
  Join(second, &mask_);
  set_->Leave(first.groups);
  EXPECT_TRUE(second.sampler->Serves(&mask_));
  set_->Leave(second.groups);
  mask_ = kTimed;  // of the copy that was loaded to the same place
  RunGroup(second, 1);
  set_->NoteOverflow();
  EXPECT_EQ(mask_, kTimed);
}

TEST_F(SamplerSetTest, GivesACopyANewSamplerAfterItsLastCommunicator) {
  Member first, later;
  Join(first, &mask_);
  set_->Freeze(*first.sampler, FreezingCall::kOther, first.groups.changes_at_end());
  set_->Leave(first.groups);
  Join(later, &mask_);
  EXPECT_EQ(mask_, kTimed) << "not frozen";
  EXPECT_EQ(later.State(), SamplingState::kLearning);
}

}  // namespace
}  // namespace nccl_exporter::plugin
