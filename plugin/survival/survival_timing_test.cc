// SPDX-License-Identifier: Apache-2.0
// Timing data that the plugin survives: items 38 to 41 of what NCCL releases are known to do.
#include <algorithm>
#include <vector>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

class TimingSurvival : public SurvivalTest {};

// One operation on one channel with the given GPU times.
template <int kVersion>
void RunWithTimes(Caller<kVersion>& caller, uint64_t start_ns, uint64_t stop_ns) {
  caller.StopKernel(caller.Kernel(caller.Announce({.channels = 1}), 0, start_ns), stop_ns);
}

TEST_F(TimingSurvival, Survives38_TimesThatCannotBeTrueAreCountedAndTimeNothing) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const uint64_t now_ns = GpuNow();
    RunWithTimes(caller, now_ns, now_ns - 1);
    RunWithTimes(caller, now_ns, 0);
    RunWithTimes(caller, 0, now_ns);
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Completed(), 3u);
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().InHistogram(), 0u);
    EXPECT_EQ(Segment().BusyNs(), 0u);
    uint64_t rejected = 0;
    for (const Loss cause :
         {Loss::kStopBeforeStart, Loss::kZeroTimestamp, Loss::kLongerThanCpuTime}) {
      rejected += Segment().Lost(cause);
    }
    EXPECT_EQ(rejected, 3u) << "each by one cause";
  });
}

TEST_F(TimingSurvival, Survives38_LongerThanTheCpuHasWaited) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const uint64_t now_ns = GpuNow();
    RunWithTimes(caller, now_ns - 60'000'000'000, now_ns);  // a stale entry is satisfied at once
    EXPECT_EQ(Segment().Completed(), 1u);
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kLongerThanCpuTime, 1}}));
  });
}

TEST_F(TimingSurvival, Survives39_EqualTimesForAllOperationsOfABatch) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    constexpr uint64_t kOperations = 8;
    const uint64_t start_ns = GpuNow();
    void* group = caller.Group();
    std::vector<void*> operations;
    for (uint64_t i = 0; i < kOperations; ++i) {
      operations.push_back(caller.Operation({.channels = 1}, caller.Call(nullptr), group));
    }
    caller.Stop(group);
    const uint64_t stop_ns = start_ns + 1000;
    for (void* operation : operations)
      caller.StopKernel(caller.Kernel(operation, 0, start_ns), stop_ns);
    EXPECT_EQ(Segment().Timed(), kOperations);
    EXPECT_EQ(Segment().BusyNs(), 1000u) << "the time of the launch, once";
    EXPECT_EQ(Sum(Segment().Of("AllReduce", 0).bandwidth), 0u)
        << "no bandwidth of an operation that was not alone";
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(TimingSurvival, Survives40_AKernelChannelThatNeverCompletes) {
  InEach<3, 4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    caller.Run();
    void* stuck = caller.Announce();
    void* first = caller.Kernel(stuck, 0, GpuNow());
    caller.StopKernel(first, GpuNow());
    caller.Kernel(stuck, 1, GpuNow());  // and no stop, ever
    constexpr uint64_t kLater = 5000;
    for (uint64_t i = 0; i < kLater; ++i) caller.Run();
    EXPECT_LE(Segment().InFlight(), 1u) << "it is no longer shown as what the rank hangs in";
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), kLater + 2);
    EXPECT_EQ(Segment().Timed(), kLater + 1);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kOperationAbandoned, 1}}));
  });
}

TEST_F(TimingSurvival, Survives40_AHangKeepsTheOperationsThatItBeganWith) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    caller.Run();
    for (int i = 0; i < 2000; ++i) caller.Kernel(caller.Announce(), 0, GpuNow());
    EXPECT_EQ(Segment().InFlight(), static_cast<uint64_t>(layout::kInFlightEntries));
    uint64_t oldest = ~uint64_t{0};
    for (const layout::InFlightEntry& entry : Segment().Slot(0)->in_flight)
      oldest = std::min(oldest, Read(entry.ticket));
    EXPECT_EQ(oldest, 2u);
    EXPECT_EQ(Segment().Started(), 2001u);
    caller.Finalize();
    EXPECT_EQ(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kInFlightFull, 2000 - layout::kInFlightEntries},
                                      {Loss::kIncompleteAtFinalize, layout::kInFlightEntries}}));
  });
}

TEST_F(TimingSurvival, Survives40_LaunchesThatAreNeverClosed) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (int i = 0; i < 2000; ++i) caller.Group();
    for (int i = 0; i < 100; ++i) caller.Run();
    caller.Finalize();
    EXPECT_EQ(Segment().Ended(), 100u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(TimingSurvival, Survives41_FewerChannelsThanAnnounced) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (int i = 0; i < 10; ++i) caller.Complete(caller.Announce({.channels = 8}), 5);
    caller.Finalize();
    EXPECT_EQ(Segment().Timed(), 0u) << "the others may have run longer";
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kChannelsMissing, 10}}));
  });
}

// Sends to oneself are not reported, and the device counts them all the same.
TEST_F(TimingSurvival, Survives41_SendToSelfUntimesWhatFollows) {
  InEach<4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller({.rank = 3});
    caller.Run();
    void* earlier = caller.Announce();
    constexpr uint64_t kSends = 40;  // fewer than overrun the ring
    for (uint64_t i = 0; i < kSends; ++i)
      caller.Announce({.function = "Send", .channels = 4, .peer = 3});
    caller.Complete(earlier);
    caller.Run();
    EXPECT_EQ(Segment().Started("Send"), kSends);
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Timed("Send"), 0u);
    EXPECT_EQ(Segment().Timed(), 2u) << "those before";
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Slot(0)->timing_source, static_cast<uint64_t>(TimingSource::kNone));
    EXPECT_EQ(Segment().Slot(0)->timing_reason, static_cast<uint64_t>(TimingReason::kDrift));
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kCommunicatorDrifting, kSends + 1}}));
  });
}

// More sends than the ring has entries are called before the channels of an earlier operation are
// read. Their work may have overwritten its time stamps, and nothing that is timed comes after it.
TEST_F(TimingSurvival, Survives41_SendsToSelfThatMayHaveOverwrittenAnEarlierTimeUntimeIt) {
  InEach<4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller({.rank = 3});
    caller.Run();
    void* earlier = caller.Announce();
    constexpr uint64_t kSends = 1000;
    for (uint64_t i = 0; i < kSends; ++i)
      caller.Announce({.function = "Send", .channels = 4, .peer = 3});
    caller.Complete(earlier);
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(Segment().Started("Send"), kSends);
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Timed("Send"), 0u);
    EXPECT_EQ(Segment().Timed(), 1u) << "the first, which was read before";
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(),
              Only({{Loss::kRingOverrun, 1}, {Loss::kCommunicatorDrifting, kSends + 1}}));
  });
}

TEST_F(TimingSurvival, Survives41_SendToSelfIsTimedLikeOthersFrom2_31On) {
  Caller<7> caller({.rank = 3});
  for (int i = 0; i < 10; ++i) caller.Run({.function = "Send", .channels = 2, .peer = 3});
  EXPECT_EQ(Segment().Timed("Send"), 10u);
  EXPECT_EQ(Segment().Lost(), Losses());
}

TEST_F(TimingSurvival, Survives41_AlltoAllIsUntimedAsAWhole) {
  InEach<4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller({.rank = 2});
    caller.Run();
    void* group = caller.Group();
    std::vector<void*> operations;
    for (int peer = 0; peer < 4; ++peer) {
      operations.push_back(
          caller.Operation({.function = "Send", .channels = 2, .peer = peer}, nullptr, group));
    }
    caller.Stop(group);
    for (void* operation : operations) caller.Complete(operation);
    EXPECT_EQ(Segment().Started("Send"), 4u);
    EXPECT_EQ(Segment().Completed("Send"), 2u) << "those before the send to self";
    EXPECT_EQ(Segment().Timed("Send"), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kDrift, 2}, {Loss::kCommunicatorDrifting, 2}}));
  });
}

TEST_F(TimingSurvival, Survives41_EmptyPartsUntimeWhatFollows) {
  InEach<4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller({.rank = 3});
    caller.Run({.function = "Send",
                .count = 1 << 16,
                .channels = 16,
                .peer = 1});  // 256 KiB: 16 parts of 16 KiB
    caller.Run({.function = "Send",
                .count = (1 << 16) + 1,
                .channels = 16,
                .peer = 1});  // 13 parts of 20 KiB
    caller.Run();
    EXPECT_EQ(Segment().Timed("Send"), 1u);
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kCommunicatorDrifting, 2}}));
  });
}

TEST_F(TimingSurvival, Survives38_ReplaysAfterAnEagerCallAreUntimed) {
  InEach<5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group_api = caller.GroupApi(true);
    void* call = caller.Call(group_api, {}, true);
    caller.Stop(call);
    caller.Stop(group_api);
    OnHostThread([&] {
      for (int i = 0; i < 10; ++i) caller.Complete(caller.Launch({}, call));
    });
    caller.Run();
    EXPECT_EQ(Segment().Timed(), 11u);
    OnHostThread([&] { caller.Complete(caller.Launch({}, call)); });
    caller.Run();
    EXPECT_EQ(Segment().Timed(), 11u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kCommunicatorDrifting, 2}}));
  });
}

TEST_F(TimingSurvival, Survives38_BroadcastsAreCollectivesLikeOthersWithoutAllgatherv) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group_api = caller.GroupApi();
    for (int root = 0; root < 2; ++root) {
      auto event = caller.Event(abi::kCollApi, group_api);
      event.collApi = {"Broadcast", 1, "ncclInt8", root, nullptr, false};
      caller.Stop(caller.Start(event));
    }
    caller.Stop(group_api);
    caller.Run();
    EXPECT_EQ(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().Calls("Broadcast"), 2u);
  });
}

TEST_F(TimingSurvival,
       Survives38_TimesOfAReleaseThatIsNotKnownAreHeldUntilTheyHaveProvenThemselves) {
  InChild([&] {
    nccl::Report(23300);
    Caller<7> caller;
    caller.Run();
    EXPECT_EQ(Segment().Timed(), 0u);
    for (int i = 0; i < 300; ++i) caller.Run();
    EXPECT_GT(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Started(), 301u);
  });
}

TEST_F(TimingSurvival, Survives38_NothingIsTimedWhereBroadcastsLackKernelEvents) {
  InEach<6, 7>([&]<int kVersion>() {
    unsetenv("NCCL_ALLGATHERV_ENABLE");
    Caller<kVersion> caller;
    caller.Run();
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Started(), 1u);
    EXPECT_EQ(Segment().Slot(0)->timing_reason,
              static_cast<uint64_t>(TimingReason::kAllgathervEnabled));
  });
}

TEST_F(TimingSurvival, Survives38_OneTimeTwiceIsDrift) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const uint64_t start_ns = GpuNow();
    void* first = caller.Announce({.channels = 1});
    const uint64_t stop_ns = GpuNow();
    caller.StopKernel(caller.Kernel(first, 0, start_ns), stop_ns);
    RunWithTimes(caller, start_ns, stop_ns);
    caller.Run();
    EXPECT_LE(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().Slot(0)->timing_reason, static_cast<uint64_t>(TimingReason::kDrift));
  });
}

TEST_F(TimingSurvival, Survives38_CompanionsOfWhatHasNoTimeAreUntimedAndCounted) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group = caller.Group();
    std::vector<void*> operations;
    for (int i = 0; i < 3; ++i) {
      operations.push_back(caller.Operation({.channels = 1}, caller.Call(nullptr), group));
    }
    caller.Stop(group);
    caller.Complete(operations[0], 1);
    caller.StopKernel(caller.Kernel(operations[1], 0, GpuNow()), 0);
    caller.Complete(operations[2], 1);
    group = caller.Group();
    for (void*& operation : operations)
      operation = caller.Operation({.channels = 1}, caller.Call(nullptr), group);
    caller.Stop(group);
    caller.Complete(operations[0], 1);
    caller.Complete(operations[1], 1);
    caller.Kernel(operations[2], 0, GpuNow());
    caller.Finalize();
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kZeroTimestamp, 1},
                                      {Loss::kIncompleteAtFinalize, 1},
                                      {Loss::kLaunchMemberUntimed, 4}}));
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
