// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "plugin/operations/launch_record.h"

namespace nccl_exporter::plugin {
namespace {

TEST(LaunchShare, GivesAnOperationThatIsAloneItsOwnInterval) {
  LaunchShare share;
  share.Add(100, 350, 7);
  EXPECT_EQ(share.DurationNs(7), 250u);
}

TEST(LaunchShare, SharesTheSpanByBytes) {
  LaunchShare share;
  share.Add(100, 900, 1000);
  share.Add(200, 1100, 3000);
  EXPECT_EQ(share.DurationNs(1000), 250u);
  EXPECT_EQ(share.DurationNs(3000), 750u);
}

TEST(LaunchShare, CountsAnEmptyMessageAsOneByte) {
  LaunchShare share;
  share.Add(0, 10, 0);
  share.Add(0, 10, 0);
  EXPECT_EQ(share.DurationNs(0), 5u);
}

TEST(LaunchShare, DoesNotOverflowForHugeMessages) {
  LaunchShare share;
  const uint64_t huge = ~uint64_t{0};
  share.Add(0, 3'600'000'000'000, huge);
  share.Add(0, 3'600'000'000'000, huge);
  EXPECT_EQ(share.DurationNs(huge), 1'800'000'000'000u);
}

TEST(LaunchShare, IsZeroForTimesThatRunBackwards) {
  LaunchShare share;
  share.Add(100, 50, 8);
  EXPECT_EQ(share.DurationNs(8), 0u);
}

}  // namespace
}  // namespace nccl_exporter::plugin
