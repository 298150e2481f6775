// SPDX-License-Identifier: Apache-2.0
#include "plugin/mask_watch.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_exporter::plugin {
namespace {

constexpr int kStored = 2 | 4 | 64;
constexpr int kOfSomebodyElse = 1;
constexpr uint32_t kSlots = 8;

class MaskWatchTest : public testing::Test {
 protected:
  std::unique_ptr<MaskWatch> watch_ = std::make_unique<MaskWatch>();
  int mask_ = kStored;
  int mask_of_other_copy_ = kStored;
};

TEST_F(MaskWatchTest, ShowsNoMaskThatNobodyHasChanged) {
  EXPECT_EQ(watch_->Overridden(3), nullptr) << "not watched";
  watch_->Begin(3, &mask_, kStored);
  EXPECT_EQ(watch_->Overridden(3), nullptr);
}

TEST_F(MaskWatchTest, ShowsAMaskThatSomebodyElseHasChanged) {
  watch_->Begin(3, &mask_, kStored);
  mask_ = kOfSomebodyElse;
  EXPECT_EQ(watch_->Overridden(3), &mask_);
  mask_ = kStored;
  EXPECT_EQ(watch_->Overridden(3), nullptr) << "changed back";
}

TEST_F(MaskWatchTest, TakesTheBitOfNetworkTimingForItsOwn) {
  watch_->Begin(3, &mask_, kStored);
  mask_ = kStored | 16;
  EXPECT_EQ(watch_->Overridden(3), nullptr);
  mask_ = kOfSomebodyElse | 16;
  EXPECT_EQ(watch_->Overridden(3), &mask_);
}

TEST_F(MaskWatchTest, ShowsAChangeToTheCommunicatorsOfItsCopyAlone) {
  watch_->Begin(1, &mask_, kStored);
  watch_->Begin(2, &mask_, kStored);
  watch_->Begin(3, &mask_of_other_copy_, kStored);
  mask_ = kOfSomebodyElse;
  EXPECT_EQ(watch_->Overridden(1), &mask_);
  EXPECT_EQ(watch_->Overridden(2), &mask_);
  EXPECT_EQ(watch_->Overridden(3), nullptr);
  EXPECT_TRUE(watch_->IsOverridden(&mask_, kSlots));
  EXPECT_FALSE(watch_->IsOverridden(&mask_of_other_copy_, kSlots));
}

TEST_F(MaskWatchTest, LooksAtNoMaskOnceItsCommunicatorIsFinalized) {
  watch_->Begin(3, &mask_, kStored);
  EXPECT_TRUE(watch_->IsWatched(3, &mask_));
  watch_->End(3);
  mask_ = kOfSomebodyElse;
  EXPECT_FALSE(watch_->IsWatched(3, &mask_));
  EXPECT_EQ(watch_->Overridden(3), nullptr);
  EXPECT_FALSE(watch_->IsOverridden(&mask_, kSlots));
}

TEST_F(MaskWatchTest, LooksAtTheSlotsThatItIsGiven) {
  watch_->Begin(kSlots, &mask_, kStored);
  mask_ = kOfSomebodyElse;
  EXPECT_FALSE(watch_->IsOverridden(&mask_, kSlots));
  EXPECT_TRUE(watch_->IsOverridden(&mask_, kSlots + 1));
}

TEST_F(MaskWatchTest, FindsNoChangeOfACopyWithoutAMask) {
  EXPECT_FALSE(watch_->IsOverridden(nullptr, kSlots));
}

}  // namespace
}  // namespace nccl_exporter::plugin
