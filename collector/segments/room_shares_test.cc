// SPDX-License-Identifier: Apache-2.0
#include "collector/segments/room_shares.h"

#include <gtest/gtest.h>

namespace nccl_exporter::collector {
namespace {

using Parts = std::vector<uint64_t>;

TEST(RoomSharesTest, PartsAreWhatIsWantedOrEqual) {
  EXPECT_EQ(FairParts({1, 5, 3}, 9), (Parts{1, 5, 3}));
  EXPECT_EQ(FairParts({1, 5, 3}, 7), (Parts{1, 3, 3}));
  EXPECT_EQ(FairParts({9, 9, 9}, 7), (Parts{2, 2, 3}));
  EXPECT_EQ(FairParts({9, 0}, 0), (Parts{0, 0}));
  EXPECT_EQ(FairParts({}, 5), Parts{});
}

TEST(RoomSharesTest, WhatMattersMoreComesFirstInAllFiles) {
  const std::vector<RoomWanted> wanted{{2, 0, 100, 0}, {4, 0, 2, 0}, {0, 3, 0, 100}};
  EXPECT_EQ(ShareRoom(wanted, 6), (Parts{2, 4, 0}));
  EXPECT_EQ(ShareRoom(wanted, 9), (Parts{2, 4, 3}));
  EXPECT_EQ(ShareRoom(wanted, 14), (Parts{5, 6, 3}));
  EXPECT_EQ(ShareRoom(wanted, 115), (Parts{102, 6, 7}));
  EXPECT_EQ(ShareRoom(wanted, 3), (Parts{1, 2, 0}));
}

}  // namespace
}  // namespace nccl_exporter::collector
