// SPDX-License-Identifier: Apache-2.0
// What the plugin survives in timing data: items 38 to 45 of what NCCL releases are known to do.
#include <algorithm>
#include <thread>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::survival {
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
    for (const Loss cause : {Loss::kStopBeforeStart, Loss::kZeroTimestamp, Loss::kLongerThanCpuTime}) {
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
    for (void* operation : operations) caller.StopKernel(caller.Kernel(operation, 0, start_ns), stop_ns);
    EXPECT_EQ(Segment().Timed(), kOperations);
    EXPECT_EQ(Segment().BusyNs(), 1000u) << "the time of the launch, once";
    EXPECT_EQ(Sum(Segment().Of("AllReduce", 0).bandwidth), 0u) << "no bandwidth of an operation that was not alone";
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
    EXPECT_EQ(Segment().Timed(), 100u);
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

// Of which nothing is reported, and which the device counts all the same.
TEST_F(TimingSurvival, Survives41_SendToSelfUntimesWhatFollows) {
  InEach<4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller({.rank = 3});
    caller.Run();
    void* earlier = caller.Announce();
    constexpr uint64_t kSends = 40;  // fewer than overrun the ring
    for (uint64_t i = 0; i < kSends; ++i) caller.Announce({.function = "Send", .channels = 4, .peer = 3});
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

// More sends than the ring has entries are called before the channels of an earlier operation are read. Their work may
// have overwritten its time stamps, and nothing that is timed comes after it.
TEST_F(TimingSurvival, Survives41_SendsToSelfThatMayHaveOverwrittenAnEarlierTimeUntimeIt) {
  InEach<4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller({.rank = 3});
    caller.Run();
    void* earlier = caller.Announce();
    constexpr uint64_t kSends = 1000;
    for (uint64_t i = 0; i < kSends; ++i) caller.Announce({.function = "Send", .channels = 4, .peer = 3});
    caller.Complete(earlier);
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(Segment().Started("Send"), kSends);
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Timed("Send"), 0u);
    EXPECT_EQ(Segment().Timed(), 1u) << "the first, which was read before";
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kRingOverrun, 1}, {Loss::kCommunicatorDrifting, kSends + 1}}));
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
      operations.push_back(caller.Operation({.function = "Send", .channels = 2, .peer = peer}, nullptr, group));
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
    caller.Run({.function = "Send", .count = 1 << 16, .channels = 16, .peer = 1});        // 256 KiB: 16 parts of 16 KiB
    caller.Run({.function = "Send", .count = (1 << 16) + 1, .channels = 16, .peer = 1});  // 13 parts of 20 KiB
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

TEST_F(TimingSurvival, Survives38_TimesOfAReleaseThatIsNotKnownAreHeldUntilTheyHaveProvenThemselves) {
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
    EXPECT_EQ(Segment().Slot(0)->timing_reason, static_cast<uint64_t>(TimingReason::kAllgathervEnabled));
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
    for (void*& operation : operations) operation = caller.Operation({.channels = 1}, caller.Call(nullptr), group);
    caller.Stop(group);
    caller.Complete(operations[0], 1);
    caller.Complete(operations[1], 1);
    caller.Kernel(operations[2], 0, GpuNow());
    caller.Finalize();
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Lost(),
              Only({{Loss::kZeroTimestamp, 1}, {Loss::kIncompleteAtFinalize, 1}, {Loss::kCompanion, 4}}));
  });
}

TEST_F(TimingSurvival, Survives42_KernelTimingThatCouldNotBeConnected) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (int i = 0; i < 3; ++i) caller.Announce();  // operations without any channel
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Completed(), 0u);
    EXPECT_EQ(Segment().Timed(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kIncompleteAtFinalize, 3}}));
  });
}

TEST_F(TimingSurvival, Survives42_SharedMemoryTooSmallForKernelTimingLeavesItOff) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  InEach<5, 6>([&]<int kVersion>() {
    ASSERT_TRUE(MountOwn("/dev/shm", "size=32m"));
    unsetenv("NCCL_EXPORTER_KERNEL_TIMING");
    Caller<kVersion> caller;
    EXPECT_EQ(caller.mask & abi::kKernelCh, 0);
    caller.Announce();
    EXPECT_EQ(Segment().Slot(0)->timing_reason, static_cast<uint64_t>(TimingReason::kSharedMemoryLow));
    EXPECT_EQ(Segment().Started(), 1u);
  });
}

TEST_F(TimingSurvival, Survives43_ReplaysOnAHostFunctionThreadBesideEagerOperations) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> eager({.id = 1}), captured({.id = 2});
    void* group_api = captured.GroupApi(true);
    void* call = captured.Call(group_api, {}, true);
    captured.Stop(call);
    captured.Stop(group_api);
    uint64_t replay_busy_ns = 0, eager_busy_ns = 0;
    std::thread host_functions([&] {
      for (int i = 0; i < 2000; ++i) replay_busy_ns += captured.Complete(captured.Launch({}, call));
    });
    for (int i = 0; i < 2000; ++i) eager_busy_ns += eager.Run();
    host_functions.join();
    EXPECT_EQ(Segment().Timed("AllReduce", 0), 2000u);
    EXPECT_EQ(Segment().Timed("AllReduce", 1), 2000u);
    EXPECT_EQ(Segment().BusyNs("AllReduce", 0), eager_busy_ns);
    EXPECT_EQ(Segment().BusyNs("AllReduce", 1), replay_busy_ns);
    EXPECT_EQ(Segment().Calls("AllReduce", 1), 1u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(TimingSurvival, Survives44_OperationsWithoutAnyEvent) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> silent({.id = 1, .ranks = 1}), called({.id = 2});
    void* call = called.Call(called.GroupApi());  // a symmetric kernel: the call is all that is told
    called.Stop(call);
    silent.Finalize();
    called.Finalize();
    const View view = Segment();
    for (size_t slot : {0, 1}) {
      EXPECT_EQ(view.Started("AllReduce", slot) + view.Completed("AllReduce", slot), 0u);
      EXPECT_EQ(view.InFlight(slot), 0u);
      EXPECT_EQ(view.State(slot), layout::SlotState::kClosed);
    }
    EXPECT_EQ(view.Calls("AllReduce", 1), kVersion >= 5 ? 1u : 0u);
    EXPECT_EQ(view.Lost(), Losses());
  });
}

TEST_F(TimingSurvival, Survives44_CopyEngineCollectivesHaveNoDuration) {
  InEach<6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller({.ranks = 4});
    auto event = caller.Event(abi::kCeColl);
    event.ceColl.func = "AlltoAll";
    event.ceColl.count = 100;
    event.ceColl.datatype = "ncclFloat16";
    for (int i = 0; i < 1000; ++i) {
      void* operation = caller.Start(event);
      EXPECT_EQ(caller.Start(caller.Event(abi::kCeSync, operation)), nullptr);
      EXPECT_EQ(caller.Start(caller.Event(abi::kCeBatch, operation)), nullptr);
      caller.Stop(operation);
    }
    EXPECT_EQ(Segment().Started("AlltoAll"), 1000u);
    EXPECT_EQ(Segment().Bytes("AlltoAll"), 1000u * 4 * 100 * 2);
    EXPECT_EQ(Segment().Timed("AlltoAll"), 0u);
    EXPECT_EQ(Segment().InFlight(), layout::kInFlightEntries) << "nothing tells when they are complete";
    EXPECT_EQ(Segment().Completed("AlltoAll"), 1000u - layout::kInFlightEntries);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

// NCCL runs what a communicator was given in order, so that a kernel that has run says that they are over.
TEST_F(TimingSurvival, Survives44_CopyEngineCollectivesAreCompleteOnceALaterKernelRan) {
  InEach<6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller({.ranks = 4});
    caller.Run({.function = "AllGather", .sequence = 7});
    for (int i = 0; i < 3; ++i) {
      void* call = caller.Call(caller.GroupApi(), {.function = "AllGather"});
      auto event = caller.Event(abi::kCeColl, call);
      event.ceColl.func = "AllGather";
      event.ceColl.count = 100;
      event.ceColl.datatype = "ncclFloat16";
      caller.Stop(caller.Start(event));
    }
    const View view = Segment();
    EXPECT_EQ(view.InFlight(), 3u);
    for (int i = 1; i <= 3; ++i) {
      EXPECT_NE(Read(view.Slot(0)->in_flight[i].function) & layout::kUntimedFlag, 0u) << "whose end nobody sees";
    }
    usleep(1'050'000);  // for as long the parts of an operation may be late
    caller.Run({.function = "AllGather", .sequence = 8});
    caller.Run({.function = "AllGather", .sequence = 9});
    EXPECT_EQ(view.Started("AllGather"), 6u);
    EXPECT_EQ(view.Completed("AllGather"), 6u);
    EXPECT_EQ(view.InFlight(), 0u);
    EXPECT_EQ(view.Timed("AllGather"), 3u) << "those with a kernel";
    EXPECT_EQ(view.Lost(), Losses());
  });
}

// What is captured runs at each replay, of which NCCL reports nothing.
TEST_F(TimingSurvival, Survives44_CapturedCopyEngineCollectivesAreNotCounted) {
  InEach<6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller({.ranks = 4});
    void* group_api = caller.GroupApi(true);
    auto event = caller.Event(abi::kCeColl, caller.Call(group_api, {.function = "AllGather"}, true));
    event.ceColl.func = "AllGather";
    caller.Stop(caller.Start(event));
    caller.Stop(group_api);
    EXPECT_EQ(Segment().Calls("AllGather"), 1u);
    EXPECT_EQ(Segment().Started("AllGather"), 0u);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(TimingSurvival, Survives45_SequenceNumberGaps) {
  InEach<1, 2, 3, 4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const std::initializer_list<uint64_t> numbers{0, 1, 7, 7, 3, ~uint64_t{0}, 0};
    for (uint64_t number : numbers) caller.Run({.sequence = number});
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), numbers.size());
    EXPECT_EQ(Segment().Timed(), numbers.size());
    const layout::CommunicatorSlot* slot = Segment().Slot(0);
    size_t entry = 0;
    for (uint64_t number : numbers) {
      constexpr uint64_t kSequenceMask = (uint64_t{1} << 56) - 1;
      EXPECT_EQ(Read(slot->completions[entry].function_and_sequence) & kSequenceMask, number & kSequenceMask);
      EXPECT_EQ(Read(slot->completions[entry].ticket), entry + 1);
      ++entry;
    }
    EXPECT_EQ(Segment().Lost(), Losses());
  });
  // There all collectives are announced, unless somebody else has changed the mask: the device has counted the others.
  InEach<7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (const uint64_t number : {0, 1, 7, 8}) caller.Run({.sequence = number});
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), 4u);
    EXPECT_EQ(Segment().Timed(), 2u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kCommunicatorDrifting, 2}}));
  });
}

}  // namespace
}  // namespace nccl_exporter::survival
