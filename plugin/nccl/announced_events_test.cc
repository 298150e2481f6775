// SPDX-License-Identifier: Apache-2.0
// The table against NCCL's source, mask by mask; //tests/chaining compares it with what the
// simulator announces.
#include "plugin/nccl/announced_events.h"

#include <gtest/gtest.h>

#include <map>

namespace nccl_exporter::plugin {
namespace {

using namespace abi;

// Events that a mask of one bit alone brings.
template <int kVersion>
uint64_t BroughtBy(uint64_t mask) {
  uint64_t brought = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t event = uint64_t{1} << i;
    if (IsAnnounced<kVersion>(event, static_cast<uint32_t>(mask))) brought |= event;
  }
  return brought;
}

constexpr uint64_t kTasks = kColl | kP2p, kNet = kProxyOp | kProxyStep;
constexpr uint64_t kCalls = kGroupApi | kCollApi | kP2pApi;

TEST(AnnouncedEvents, AreThoseOf227) {
  const std::map<uint64_t, uint64_t> brought{{kGroup, kGroup},
                                             {kColl, kGroup | kColl},
                                             {kP2p, kGroup | kP2p},
                                             {kProxyOp, kGroup | kTasks | kProxyOp},
                                             {kProxyStep, kGroup | kTasks | kNet},
                                             {kProxyCtrl, kProxyCtrl},
                                             {kKernelCh, kGroup | kTasks | kKernelCh},
                                             {kNetPlugin, kGroup | kColl | kNet | kNetPlugin},
                                             {kGroupApi, 0},
                                             {kCeColl, 0},
                                             {kKernelPhase, 0}};
  for (const auto& [mask, events] : brought) EXPECT_EQ(BroughtBy<4>(mask), events) << mask;
}

TEST(AnnouncedEvents, IncludeCallsFrom228On) {
  const std::map<uint64_t, uint64_t> brought{
      {kGroup, kGroup | kGroupApi},
      {kColl, kGroup | kColl | kGroupApi | kCollApi},
      {kP2p, kGroup | kP2p | kGroupApi | kP2pApi},
      {kProxyOp, kGroup | kTasks | kProxyOp | kCalls},
      {kProxyStep, kGroup | kTasks | kNet | kCalls},
      {kProxyCtrl, kProxyCtrl},
      {kKernelCh, kGroup | kTasks | kKernelCh | kCalls},
      {kNetPlugin, kGroup | kTasks | kNet | kNetPlugin | kCalls},
      {kGroupApi, kGroupApi},
      {kCollApi, kGroupApi | kCollApi},
      {kP2pApi, kGroupApi | kP2pApi},
      {kKernelLaunch, kGroupApi | kKernelLaunch}};
  for (const auto& [mask, events] : brought) {
    EXPECT_EQ(BroughtBy<5>(mask), events) << mask;
    EXPECT_EQ(BroughtBy<6>(mask), events) << mask;
    EXPECT_EQ(BroughtBy<7>(mask), events) << mask;
  }
}

TEST(AnnouncedEvents, IncludeCopiesFrom229OnAndPhasesFrom231On) {
  const uint64_t copy = kGroupApi | kCollApi | kCeColl;
  const std::map<uint64_t, uint64_t> brought{
      {kCeColl, copy}, {kCeSync, copy | kCeSync}, {kCeBatch, copy | kCeBatch}};
  for (const auto& [mask, events] : brought) {
    EXPECT_EQ(BroughtBy<5>(mask), 0u) << mask;
    EXPECT_EQ(BroughtBy<6>(mask), events) << mask;
    EXPECT_EQ(BroughtBy<7>(mask), events) << mask;
  }
  EXPECT_EQ(BroughtBy<6>(kKernelPhase), 0u);
  EXPECT_EQ(BroughtBy<7>(kKernelPhase), kGroup | kTasks | kCalls | kKernelCh | kKernelPhase);
}

TEST(AnnouncedEvents, HaveOneBit) {
  EXPECT_FALSE((IsAnnounced<7>(0, ~0u)));
  EXPECT_FALSE((IsAnnounced<7>(kColl | kP2p, ~0u)));
  EXPECT_FALSE((IsAnnounced<7>(uint64_t{1} << 16, ~0u)));
  EXPECT_FALSE((IsAnnounced<7>(uint64_t{1} << 63, ~0u)));
}

}  // namespace
}  // namespace nccl_exporter::plugin
