// SPDX-License-Identifier: Apache-2.0
#include "plugin/nccl/event_policy.h"

#include <gtest/gtest.h>

#include <utility>

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 40;
constexpr int kTasks = 2 | 4;
constexpr int kProxyOp = 8;
constexpr int kKernelCh = 64;
constexpr int kCopyEngine = 4096;

struct Case {
  const char* what;
  PolicyInput input;
  int mask;
  TimingSource source;
  TimingReason reason;
};

TEST(EventPolicy, NeverAsksForKernelEventsThatBroadcastsLack) {
  for (const KernelTiming timing : {KernelTiming::kAuto, KernelTiming::kOn}) {
    for (const auto& [api_version, nccl_version] : {std::pair{6, 0},
                                                    {6, 22900},
                                                    {6, 23007},
                                                    {7, 0},
                                                    {7, 23100},
                                                    {7, 23102},
                                                    {7, 23103},
                                                    {7, 23206},
                                                    {7, 23300}}) {
      const EventPolicy policy = DecideEvents({api_version, nccl_version, timing, kPlenty, 8});
      EXPECT_EQ(policy.mask & kKernelCh, 0) << nccl_version;
      EXPECT_EQ(policy.causes, DriftCauses{}) << nccl_version << ": nothing to watch";
    }
  }
}

using enum TimingSource;
using R = TimingReason;
using K = KernelTiming;
const Case kTable[] = {
    {"2.23", {1, 22304, K::kAuto, kPlenty, 8}, kTasks | kProxyOp, kProxy, R::kApiTooOld},
    {"2.24", {2, 22403, K::kAuto, kPlenty, 8}, kTasks | kProxyOp, kProxy, R::kApiTooOld},
    {"2.23, forced on: there is no such event",
     {1, 22304, K::kOn, kPlenty, 8},
     kTasks | kProxyOp,
     kProxy,
     R::kApiTooOld},
    {"2.26", {3, 22606, K::kAuto, kPlenty, 8}, kTasks | kProxyOp, kProxy, R::kApiTooOld},
    {"2.26, forced on",
     {3, 22606, K::kOn, kPlenty, 8},
     kTasks | kKernelCh,
     kKernelCpu,
     R::kConfigured},
    {"2.27", {4, 22707, K::kAuto, kPlenty, 8}, kTasks | kProxyOp, kProxy, R::kReleaseUnsound},
    {"2.27, forced on",
     {4, 22707, K::kOn, kPlenty, 8},
     kTasks | kKernelCh,
     kKernel,
     R::kConfigured},
    {"2.28", {5, 22809, K::kAuto, kPlenty, 8}, kTasks | kKernelCh, kKernel, R::kDefault},
    {"2.29 and later: Broadcasts lack kernel events",
     {6, 22903, K::kAuto, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kAllgathervEnabled},
    {"2.30, forced on: a hang is not a choice",
     {6, 23007, K::kOn, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kAllgathervEnabled},
    {"2.32",
     {7, 23206, K::kAuto, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kAllgathervEnabled},
    {"2.30",
     {6, 23007, K::kAuto, kPlenty, 8, true},
     kTasks | kKernelCh | kCopyEngine,
     kKernel,
     R::kDefault},
    {"2.30, version hidden",
     {6, 0, K::kAuto, kPlenty, 8, true},
     kTasks | kKernelCh | kCopyEngine,
     kKernel,
     R::kDefault},
    {"2.30, off",
     {6, 23007, K::kOff, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kConfigured},
    {"2.31.0",
     {7, 23100, K::kAuto, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kReleaseUnsound},
    {"2.31.2",
     {7, 23102, K::kAuto, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kReleaseUnsound},
    {"2.31.2, forced on",
     {7, 23102, K::kOn, kPlenty, 8, true},
     kTasks | kKernelCh | kCopyEngine,
     kKernel,
     R::kConfigured},
    {"2.31.3",
     {7, 23103, K::kAuto, kPlenty, 8, true},
     kTasks | kKernelCh | kCopyEngine,
     kKernel,
     R::kDefault},
    {"2.31, version hidden",
     {7, 0, K::kAuto, kPlenty, 8},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kReleaseUnknown},
    {"little shared memory",
     {6, 23007, K::kAuto, 288 << 20, 8, true},
     kTasks | kProxyOp | kCopyEngine,
     kProxy,
     R::kSharedMemoryLow},
    {"just enough for one",
     {6, 23007, K::kAuto, 288 << 20, 1, true},
     kTasks | kKernelCh | kCopyEngine,
     kKernel,
     R::kDefault},
    {"one CPU and a half",
     {5, 22809, K::kAuto, kPlenty, 8, false, 1500},
     kTasks | kProxyOp,
     kProxy,
     R::kCpusLow},
    {"two CPUs",
     {5, 22809, K::kAuto, kPlenty, 8, false, 2000},
     kTasks | kKernelCh,
     kKernel,
     R::kDefault},
    {"one CPU, forced on",
     {5, 22809, K::kOn, kPlenty, 8, false, 1000},
     kTasks | kKernelCh,
     kKernel,
     R::kConfigured},
    {"little, forced on",
     {6, 23007, K::kOn, 0, 8, true},
     kTasks | kKernelCh | kCopyEngine,
     kKernel,
     R::kConfigured},
};

TEST(EventPolicy, DecidesEveryRowOfTheTable) {
  for (const Case& expected : kTable) {
    const EventPolicy policy = DecideEvents(expected.input);
    EXPECT_EQ(policy.mask, expected.mask) << expected.what;
    EXPECT_EQ(policy.source, expected.source) << expected.what;
    EXPECT_EQ(policy.reason, expected.reason) << expected.what;
  }
}

TEST(EventPolicy, AsksForNoKernelEventsWhereAWeakExchangeMayLoseTheProxysSlots) {
  for (const KernelTiming timing : {K::kAuto, K::kOn}) {
    for (const auto& [api_version, nccl_version] :
         {std::pair{3, 22606}, {4, 22707}, {5, 22803}, {5, 22809}, {5, 0}, {6, 22902}, {6, 0}}) {
      PolicyInput input{api_version, nccl_version, timing, kPlenty, 8, true};
      input.weak_exchange_may_fail = true;
      const EventPolicy policy = DecideEvents(input);
      EXPECT_EQ(policy.mask & kKernelCh, 0) << nccl_version;
      EXPECT_EQ(policy.source, kProxy) << nccl_version;
      const bool has_time = api_version > 3;
      EXPECT_EQ(policy.reason, has_time || timing == K::kOn ? R::kReleaseUnsound : R::kApiTooOld)
          << nccl_version;
    }
    for (const auto& [api_version, nccl_version] :
         {std::pair{6, 22903}, {6, 23007}, {7, 23103}, {7, 23206}}) {
      PolicyInput input{api_version, nccl_version, timing, kPlenty, 8, true};
      input.weak_exchange_may_fail = true;
      EXPECT_EQ(DecideEvents(input).mask & kKernelCh, kKernelCh) << nccl_version;
    }
  }
}

TEST(EventPolicy, AsksForNoKernelEventsWhereCommunicatorsShareAProxy) {
  for (const KernelTiming timing : {K::kAuto, K::kOn}) {
    for (const auto& [api_version, nccl_version] :
         {std::pair{5, 22809}, {6, 23007}, {7, 23103}, {7, 23206}}) {
      PolicyInput input{api_version, nccl_version, timing, kPlenty, 8, true};
      input.shares_resources = true;
      const EventPolicy policy = DecideEvents(input);
      EXPECT_EQ(policy.mask & kKernelCh, 0) << nccl_version;
      EXPECT_EQ(policy.reason, R::kResourcesShared) << nccl_version;
    }
  }
}

TEST(EventPolicy, AsksByDefaultForNoKernelEventsWhereTheirFlagsMayBeMisplaced) {
  const auto decide = [](int api_version, int nccl_version, KernelTiming timing) {
    PolicyInput input{api_version, nccl_version, timing, kPlenty, 8, true};
    input.may_register_nvls_buffers = true;
    return DecideEvents(input);
  };
  for (const auto& [api_version, nccl_version] :
       {std::pair{5, 22803}, {5, 22809}, {6, 22907}, {6, 23007}, {7, 23103}, {7, 23199}}) {
    const EventPolicy policy = decide(api_version, nccl_version, K::kAuto);
    EXPECT_EQ(policy.mask & kKernelCh, 0) << nccl_version;
    EXPECT_EQ(policy.reason, R::kRegistrationEnabled) << nccl_version;
    EXPECT_EQ(decide(api_version, nccl_version, K::kOn).reason, R::kConfigured) << nccl_version;
  }
  EXPECT_EQ(decide(4, 22707, K::kAuto).reason, R::kReleaseUnsound);
  EXPECT_EQ(decide(7, 23102, K::kAuto).reason, R::kReleaseUnsound);
  EXPECT_EQ(decide(7, 23206, K::kAuto).reason, R::kDefault);
}

TEST(EventPolicy, NeverAsksForBitsThatAVersionDoesNotHave) {
  const int highest[] = {0, 63, 63, 255, 255, 4095, 32767, 65535};
  for (int api = 1; api <= 7; ++api) {
    for (KernelTiming timing : {KernelTiming::kAuto, KernelTiming::kOn, KernelTiming::kOff}) {
      EXPECT_LE(DecideEvents({api, 0, timing, kPlenty, 1}).mask, highest[api]) << "v" << api;
    }
  }
}

TEST(EventPolicy, PutsTimesOfReleasesThatAreNotInTheTableOnProbation) {
  const auto on_probation = [](int api, int version, KernelTiming timing) {
    const EventPolicy policy = DecideEvents({api, version, timing, kPlenty, 8, true});
    EXPECT_EQ(policy.source, TimingSource::kKernel) << version;
    return policy.times_are_on_probation;
  };
  EXPECT_FALSE(on_probation(6, 23007, KernelTiming::kAuto));
  EXPECT_FALSE(on_probation(7, 23206, KernelTiming::kAuto));
  EXPECT_TRUE(on_probation(7, 23300, KernelTiming::kAuto));
  EXPECT_TRUE(on_probation(7, 0, KernelTiming::kOn));
}

// NCCL 2.28 reads through a null pointer where it finds no room for a pool.
TEST(EventPolicy, ThereIsRoomForPoolsOfAllLocalRanksOrNoKernelTiming) {
  constexpr uint64_t kPools = 2 * 8 * kKernelTimingPoolBytes;  // two of each rank
  const auto has_room = [](uint64_t at_first, uint64_t now, uint64_t communicators) {
    return HasRoomForPools({at_first, now, communicators, 8});
  };
  EXPECT_TRUE(has_room(4 * kPools, kPools, 8));
  EXPECT_FALSE(has_room(4 * kPools, kPools - 1, 8)) << "others have taken it";
  EXPECT_FALSE(has_room(4 * kPools, 4 * kPools, 9)) << "their pools come with their operations";
}

TEST(EventPolicy, WithdrawnKernelEventsLeaveThoseOfProxies) {
  EventPolicy policy = DecideEvents({5, 22809, KernelTiming::kOn, kPlenty, 8});
  ASSERT_NE(policy.mask & kKernelCh, 0);
  WithdrawKernelEvents(policy);
  EXPECT_EQ(policy.mask, kTasks | kProxyOp);
  EXPECT_EQ(policy.source, kProxy);
  EXPECT_EQ(policy.reason, R::kSharedMemoryLow);
  EXPECT_EQ(policy.causes, DriftCauses{});
}

}  // namespace
}  // namespace nccl_exporter::plugin
