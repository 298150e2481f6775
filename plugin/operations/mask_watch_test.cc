// SPDX-License-Identifier: Apache-2.0
// Watch of a communicator over the event mask of its copy of libnccl.
#include "plugin/testing/communicator_fixture.h"

namespace nccl_exporter::plugin {
namespace {

constexpr int kStored = 2 | 4 | 64;
constexpr int kOfSomebodyElse = 1;
constexpr int kNetworkBit = 16;

class MaskWatchTest : public CommunicatorTest {
 protected:
  int mask_ = kStored;
  int mask_of_other_copy_ = kStored;
};

TEST_F(MaskWatchTest, ShowsNoMaskThatNobodyHasChanged) {
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr) << "not watched";
  communicator_->WatchMask(&mask_, kStored, kNetworkBit);
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr);
}

TEST_F(MaskWatchTest, ShowsAMaskThatSomebodyElseHasChanged) {
  communicator_->WatchMask(&mask_, kStored, kNetworkBit);
  mask_ = kOfSomebodyElse;
  EXPECT_EQ(communicator_->OverriddenMask(), &mask_);
  mask_ = kStored;
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr) << "changed back";
}

TEST_F(MaskWatchTest, TakesTheBitOfNetworkTimingForItsOwn) {
  communicator_->WatchMask(&mask_, kStored, kNetworkBit);
  mask_ = kStored | kNetworkBit;
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr);
  EXPECT_FALSE(communicator_->MayBeOverridden());
  mask_ = kOfSomebodyElse | kNetworkBit;
  EXPECT_TRUE(communicator_->MayBeOverridden());
  EXPECT_EQ(communicator_->OverriddenMask(), &mask_);
}

TEST_F(MaskWatchTest, LooksTwiceAtTheBitsOfAChainedPlugin) {
  constexpr int kOfChained = 8;
  communicator_->WatchMask(&mask_, kStored, kNetworkBit | kOfChained);
  EXPECT_FALSE(communicator_->MayBeOverridden());
  mask_ = kStored | kOfChained;
  EXPECT_TRUE(communicator_->MayBeOverridden());
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr);
  mask_ = kOfSomebodyElse | kOfChained;
  EXPECT_TRUE(communicator_->MayBeOverridden());
  EXPECT_EQ(communicator_->OverriddenMask(), &mask_);
}

TEST_F(MaskWatchTest, KnowsTheMaskOfItsOwnCopyAlone) {
  communicator_->WatchMask(&mask_, kStored, kNetworkBit);
  mask_of_other_copy_ = kOfSomebodyElse;
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr);
}

TEST_F(MaskWatchTest, LooksAtNoMaskOnceItsCommunicatorIsFinalized) {
  communicator_->WatchMask(&mask_, kStored, kNetworkBit);
  communicator_->UnwatchMask();
  mask_ = kOfSomebodyElse;
  EXPECT_FALSE(communicator_->MayBeOverridden());
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr);
}

TEST_F(MaskWatchTest, ShowsAChangeOnceAndSaysWhyKernelTimingHasEnded) {
  Open(TimingSource::kKernel);
  communicator_->WatchMask(&mask_, kStored, kNetworkBit);
  mask_ = kOfSomebodyElse;
  communicator_->EndKernelTiming(TimingReason::kMaskOverride);
  EXPECT_EQ(communicator_->OverriddenMask(), nullptr);
  EXPECT_EQ(slot_->timing_reason, static_cast<uint64_t>(TimingReason::kMaskOverride));
  EXPECT_EQ(slot_->timing_source, static_cast<uint64_t>(TimingSource::kNone));
}

}  // namespace
}  // namespace nccl_exporter::plugin
