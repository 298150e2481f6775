// SPDX-License-Identifier: Apache-2.0
#include "plugin/captures.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

bool ArePossibleWith(const char* launch_blocking) {
  HostAnnouncements announcements{};
  announcements.Open(launch_blocking);
  return announcements.ArePossible();
}

TEST(HostAnnouncementsTest, ReadsLaunchBlockingAsNcclDoes) {
  EXPECT_FALSE(ArePossibleWith(nullptr));
  EXPECT_FALSE(ArePossibleWith(""));
  EXPECT_FALSE(ArePossibleWith("0"));
  EXPECT_TRUE(ArePossibleWith("1"));
  EXPECT_TRUE(ArePossibleWith("00"));
  EXPECT_TRUE(ArePossibleWith("no"));
}

TEST(HostAnnouncementsTest, ArePossibleFromTheFirstCapturedCallOn) {
  HostAnnouncements announcements{};
  announcements.Open(nullptr);
  announcements.SetPossible();
  EXPECT_TRUE(announcements.ArePossible());
}

}  // namespace
}  // namespace nccl_exporter::plugin
