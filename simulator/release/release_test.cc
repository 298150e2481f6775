// SPDX-License-Identifier: Apache-2.0
#include "simulator/release/release.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nccl_exporter::sim {
namespace {

constexpr NcclSettings kNoAllGatherV{.uses_allgatherv = false};
constexpr NcclSettings kRearchitected{.has_rearchitected_enqueue = true};

TEST(Release, SpeaksTheNewestApiFrom231On) {
  EXPECT_EQ(NativeApiVersion(22200), 0);
  EXPECT_EQ(NativeApiVersion(23007), 6);
  for (const int release : {23100, 23103, 23203, 23206, 23301})
    EXPECT_EQ(NativeApiVersion(release), 7) << release;
}

TEST(Release, ForgetsBroadcastsOnAllOfV7) {
  for (const int release : {23102, 23103, 23203, 23206}) {
    EXPECT_TRUE(Release(release).ForgetsBroadcasts()) << release;
    EXPECT_FALSE(Release(release, kNoAllGatherV).ForgetsBroadcasts()) << release;
    EXPECT_FALSE(Release(release, kNoAllGatherV).BroadcastIsCallOnly()) << release;
    EXPECT_FALSE(Release(release, kRearchitected).ForgetsBroadcasts()) << release;
  }
  EXPECT_FALSE(Release(23007).ForgetsBroadcasts());
  EXPECT_TRUE(Release(23007).BroadcastIsCallOnly());
  EXPECT_FALSE(Release(22809).BroadcastIsCallOnly());
}

TEST(Release, WaitsForEventsAtDestroyFrom226To230) {
  EXPECT_FALSE(Release(22501).WaitsForEventsAtDestroy());
  for (const int release : {22606, 22707, 22809, 22907, 23007}) {
    EXPECT_TRUE(Release(release).WaitsForEventsAtDestroy()) << release;
  }
  EXPECT_FALSE(Release(23102).WaitsForEventsAtDestroy());
  EXPECT_FALSE(Release(23206).WaitsForEventsAtDestroy());
}

TEST(Release, AnnouncesNoCallsWithTheRearchitectedEnqueue) {
  EXPECT_TRUE(Release(23206).AnnouncesCalls());
  EXPECT_FALSE(Release(23206, kRearchitected).AnnouncesCalls());
  EXPECT_TRUE(Release(23007, kRearchitected).AnnouncesCalls());
}

TEST(NcclParameter, IsReadAsNcclReadsIt) {
  const char* const name = "NCCL_SIM_TEST_PARAMETER";
  unsetenv(name);
  EXPECT_EQ(NcclParameter(name, 1), 1);
  const auto read = [&](const char* text) {
    setenv(name, text, 1);
    return NcclParameter(name, 1);
  };
  EXPECT_EQ(read(""), 1);
  EXPECT_EQ(read("0"), 0);
  EXPECT_EQ(read("0x10"), 16);
  EXPECT_EQ(read("2nd"), 2);
  EXPECT_EQ(read("off"), 0);  // strtoll finds no digits
  EXPECT_EQ(read("99999999999999999999"), 1);
}

}  // namespace
}  // namespace nccl_exporter::sim
