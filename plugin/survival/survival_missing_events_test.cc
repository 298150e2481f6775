// SPDX-License-Identifier: Apache-2.0
// Missing events that the plugin survives: items 42 to 45 of what NCCL releases are known to do.
#include <thread>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

class MissingEventsSurvival : public SurvivalTest {};

TEST_F(MissingEventsSurvival, Survives42_KernelTimingThatCouldNotBeConnected) {
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

TEST_F(MissingEventsSurvival, Survives42_SharedMemoryTooSmallForKernelTimingLeavesItOff) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  InEach<5, 6>([&]<int kVersion>() {
    ASSERT_TRUE(MountOwn("/dev/shm", "size=32m"));
    unsetenv("NCCL_EXPORTER_KERNEL_TIMING");
    Caller<kVersion> caller;
    EXPECT_EQ(caller.mask & abi::kKernelCh, 0);
    caller.Announce();
    EXPECT_EQ(Segment().Slot(0)->timing_reason,
              static_cast<uint64_t>(TimingReason::kSharedMemoryLow));
    EXPECT_EQ(Segment().Started(), 1u);
  });
}

TEST_F(MissingEventsSurvival, Survives43_ReplaysOnAHostFunctionThreadBesideEagerOperations) {
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

TEST_F(MissingEventsSurvival, Survives44_OperationsWithoutAnyEvent) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> silent({.id = 1, .ranks = 1}), called({.id = 2});
    // A symmetric kernel: only the call is reported.
    void* call = called.Call(called.GroupApi());
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

TEST_F(MissingEventsSurvival, Survives44_CopyEngineCollectivesHaveNoDuration) {
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
    EXPECT_EQ(Segment().InFlight(), layout::kInFlightEntries)
        << "nothing tells when they are complete";
    EXPECT_EQ(Segment().Completed("AlltoAll"), 1000u - layout::kInFlightEntries);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

// NCCL runs what a communicator was given in order, so that a kernel that has run says that they
// are over.
TEST_F(MissingEventsSurvival, Survives44_CopyEngineCollectivesAreCompleteOnceALaterKernelRan) {
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
      EXPECT_NE(Read(view.Slot(0)->in_flight[i].function) & layout::kUntimedFlag, 0u)
          << "whose end nobody sees";
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

// Captured operations run at each replay, of which NCCL reports nothing.
TEST_F(MissingEventsSurvival, Survives44_CapturedCopyEngineCollectivesAreNotCounted) {
  InEach<6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller({.ranks = 4});
    void* group_api = caller.GroupApi(true);
    auto event =
        caller.Event(abi::kCeColl, caller.Call(group_api, {.function = "AllGather"}, true));
    event.ceColl.func = "AllGather";
    caller.Stop(caller.Start(event));
    caller.Stop(group_api);
    EXPECT_EQ(Segment().Calls("AllGather"), 1u);
    EXPECT_EQ(Segment().Started("AllGather"), 0u);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(MissingEventsSurvival, Survives45_SequenceNumberGaps) {
  InEach<1, 2, 3, 4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const std::initializer_list<uint64_t> numbers{0, 1, 7, 7, 3, ~uint64_t{0}, 0};
    for (uint64_t number : numbers) caller.Run({.sequence = number});
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), numbers.size());
    EXPECT_EQ(Segment().Ended(), numbers.size());
    if (!Segment().HasDurations()) return;
    const layout::CommunicatorSlot* slot = Segment().Slot(0);
    size_t entry = 0;
    for (uint64_t number : numbers) {
      constexpr uint64_t kSequenceMask = (uint64_t{1} << 56) - 1;
      EXPECT_EQ(Read(slot->completions[entry].function_and_sequence) & kSequenceMask,
                number & kSequenceMask);
      EXPECT_EQ(Read(slot->completions[entry].ticket), entry + 1);
      ++entry;
    }
    EXPECT_EQ(Segment().Lost(), Losses());
  });
  // There all collectives are announced, unless another program has changed the mask: the device
  // has counted the others.
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
}  // namespace nccl_exporter::plugin::survival
