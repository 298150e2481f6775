// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/nccl_release.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

DriftCauses Causes(int api_version, int nccl_version) {
  return FactsOf(api_version, nccl_version).causes;
}

TEST(NcclReleases, AreInOrderAndDoNotOverlap) {
  int last = 0;
  for (const NcclRelease& release : kNcclReleases) {
    EXPECT_GT(release.first_version, last);
    EXPECT_GE(release.last_version, release.first_version);
    last = release.last_version;
  }
}

TEST(NcclReleases, NameTheCausesOfDrift) {
  constexpr DriftCauses kUntil230{.hides_parts = true, .forgets_replays = true};
  EXPECT_EQ(Causes(2, 22403), DriftCauses{});
  EXPECT_EQ(Causes(3, 22606), kUntil230);
  EXPECT_EQ(Causes(5, 22809), kUntil230);
  EXPECT_EQ(Causes(6, 23007), kUntil230);
  for (const int version : {0, 23100, 23102, 23103, 23203, 23206, 23300}) {
    EXPECT_EQ(Causes(7, version), DriftCauses{.forgets_unannounced = true})
        << version << ": AlltoAll and sends to self do not drift";
  }
}

TEST(NcclReleases, HaveStepsOfTheNetworkFrom224On) {
  EXPECT_FALSE(FactsOf(1, 22304).has_network_steps);
  for (const NcclRelease& release : kNcclReleases)
    EXPECT_EQ(release.has_network_steps, release.api_version >= 2) << release.first_version;
  EXPECT_TRUE(FactsOf(7, 23300).has_network_steps) << "newer than the table";
}

TEST(NcclReleases, GiveBroadcastsNoKernelEventsFrom229On) {
  EXPECT_FALSE(FactsOf(5, 22809).broadcasts_lack_events);
  for (const int version : {0, 22900, 23007})
    EXPECT_TRUE(FactsOf(6, version).broadcasts_lack_events) << version;
  for (const int version : {0, 23100, 23102, 23103, 23203, 23206, 23300}) {
    EXPECT_TRUE(FactsOf(7, version).broadcasts_lack_events) << version;
  }
}

TEST(FactsOf, KnowsReleasesByTheirVersionOrByAnApiThatNamesThem) {
  EXPECT_TRUE(FactsOf(6, 0).is_known);
  EXPECT_TRUE(FactsOf(6, 22902).is_known);
  EXPECT_TRUE(FactsOf(7, 23203).is_known);
  EXPECT_EQ(FactsOf(7, 23101).kernel_events, KernelEvents::kCostly);
  EXPECT_EQ(FactsOf(7, 23203).kernel_events, KernelEvents::kTimed);
}

TEST(FactsOf, DoesNotKnowNewerReleasesAndContradictions) {
  EXPECT_FALSE(FactsOf(7, 0).is_known);
  EXPECT_FALSE(FactsOf(7, 23207).is_known);
  EXPECT_FALSE(FactsOf(7, 24000).is_known);
  const NcclRelease contradiction = FactsOf(5, 23007);
  EXPECT_FALSE(contradiction.is_known);
  EXPECT_TRUE(contradiction.broadcasts_lack_events);
}

}  // namespace
}  // namespace nccl_exporter::plugin
