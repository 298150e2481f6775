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
  const auto shares = [&](uint64_t room) {
    SharedRoom shared(wanted, room);
    Parts parts;
    for (size_t file = 0; file < wanted.size(); ++file) {
      parts.push_back(shared.LimitsOf(file).all);
      shared.Take(file, parts.back());
    }
    return parts;
  };
  EXPECT_EQ(shares(6), (Parts{2, 4, 0}));
  EXPECT_EQ(shares(9), (Parts{2, 4, 3}));
  EXPECT_EQ(shares(14), (Parts{5, 6, 3}));
  EXPECT_EQ(shares(115), (Parts{102, 6, 7}));
  EXPECT_EQ(shares(3), (Parts{1, 2, 0}));
}

TEST(RoomSharesTest, WhatOneFileLeavesGoesToTheNext) {
  SharedRoom shared({{5, 0, 5, 0}, {8, 0, 0, 0}, {0, 0, 0, 9}}, 30);
  EXPECT_EQ(shared.LimitsOf(0).all, 13u);
  shared.Take(0, 2);
  EXPECT_EQ(shared.LimitsOf(1).all, 19u);
  shared.Take(1, 19);
  EXPECT_EQ(shared.LimitsOf(2).all, 9u);
}

TEST(RoomSharesTest, MoreInUseThanWasKnownTakesTheRoomOfWhatMattersLeast) {
  SharedRoom shared({{2, 0, 1, 0}, {2, 0, 0, 0}, {0, 3, 0, 0}, {0, 0, 0, 8}, {0, 0, 0, 4}}, 20);
  EXPECT_EQ(shared.LimitsOf(0).all, 3u);
  EXPECT_EQ(shared.LimitsOf(0).in_use, 18u) << "all but what others have in use";
  shared.Take(0, 9);
  EXPECT_EQ(shared.LimitsOf(1).all, 2u);
  EXPECT_EQ(shared.LimitsOf(1).in_use, 11u);
  shared.Take(1, 10);
  EXPECT_EQ(shared.LimitsOf(2).all, 1u) << "ended without finalizing: gives way last";
  shared.Take(2, 1);
  EXPECT_EQ(shared.LimitsOf(3).all + shared.LimitsOf(4).all, 0u);
}

}  // namespace
}  // namespace nccl_exporter::collector
