// SPDX-License-Identifier: Apache-2.0
// Handles and pairings that the plugin survives: items 1 to 9 of what NCCL releases are known to
// do.
#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

class HandleSurvival : public SurvivalTest {};

template <int kVersion>
constexpr uint64_t kCallsOf = kVersion >= 5 ? 1 : 0;  // calls that one AllReduce makes

TEST_F(HandleSurvival, Survives01_HandleSlotWithOldContent) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    const std::initializer_list<uint64_t> dropped{
        abi::kProxyStep, abi::kProxyCtrl,   abi::kNetPlugin, abi::kCeSync,
        abi::kCeBatch,   abi::kKernelPhase, 1u << 20,        0};
    for (uint64_t type : dropped) {
      auto event = caller.Event(type, operation);
      void* slot = operation;
      caller.table->startEvent(caller.context, &slot, &event);
      EXPECT_EQ(slot, nullptr) << type;
      caller.Stop(slot);
    }
    auto event = caller.Coll({}, nullptr, nullptr);
    void* slot = operation;
    caller.table->startEvent(kOldContent, &slot, &event);  // not a context
    EXPECT_EQ(slot, nullptr);
    slot = operation;
    caller.table->startEvent(caller.context, &slot, nullptr);
    EXPECT_EQ(slot, nullptr);
    caller.table->startEvent(caller.context, nullptr, &event);
    caller.Complete(operation);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    Losses losses = Only({{Loss::kUnknownContext, 1}});
    // The step, whose parent is no proxy operation.
    constexpr uint64_t kOrphans = kVersion >= 2 ? 1 : 0;
    if (kOrphans != 0) losses.merge(Only({{Loss::kUnknownHandle, kOrphans}}));
    EXPECT_EQ(Segment().Lost(), losses);
  });
}

TEST_F(HandleSurvival, Survives02_StopOfNull) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    uint64_t value = 1;
    for (int state = -1; state <= 32; ++state) {
      caller.Stop(nullptr);
      caller.Record(nullptr, state, &value);
      caller.Record(nullptr, state);
    }
    caller.Run();
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(HandleSurvival, Survives03_CollApiSlotThatIsNeverCleared) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* old_call = caller.Call(caller.GroupApi());
    caller.Stop(old_call);
    uint64_t busy_ns = 0;
    for (int i = 0; i < 100; ++i) {
      caller.Stop(old_call);
      busy_ns += caller.Complete(caller.Launch({}, old_call));  // the stale parent as well
    }
    caller.Finalize();
    ExpectAllTimed(Segment(), 100);
    EXPECT_EQ(Segment().BusyNs(), busy_ns);
    EXPECT_EQ(Segment().Calls(), 1u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(HandleSurvival, Survives04_KernelChStopOnAStaleHandle) {
  InEach<3, 4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* done = caller.Announce();
    void* stale[2] = {caller.Kernel(done, 0, GpuNow()), caller.Kernel(done, 1, GpuNow())};
    for (void* handle : stale) caller.StopKernel(handle, GpuNow());
    // The first is then over in v3 too, which does not report how many channels come.
    caller.Run();
    for (void* handle : stale) caller.StopKernel(handle, GpuNow());
    caller.Finalize();
    ExpectAllTimed(Segment(), 2);
    // The record and the stop are one event each; v3 has no record, but the time of the stop is
    // taken.
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kAfterCompletion, 4}}));
  });
}

TEST_F(HandleSurvival, Survives04_AndTakesNoTimeFromTheLaterOperationThatTheStopBelongsTo) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    const uint64_t start_ns = GpuNow();
    void* slow = caller.Announce();
    void* first = caller.Kernel(slow, 0, start_ns);
    void* second = caller.Kernel(slow, 1, start_ns);
    caller.StopKernel(first, start_ns + 10);
    // The next operation's stop on channel 0 is seen before its start, and is reported on the
    // handle in the slot.
    while (GpuNow() < start_ns + 100'000) {
    }
    caller.StopKernel(first, start_ns + 100'000);
    caller.StopKernel(second, start_ns + 20);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().BusyNs(), 20u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kAfterCompletion, 2}}));
  });
}

TEST_F(HandleSurvival, Survives05_KernelChStartThatIsDropped) {
  InEach<3, 4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    void* slot = caller.Kernel(operation, 0, GpuNow());
    auto event = caller.Event(abi::kKernelCh, kOldContent);
    caller.table->startEvent(caller.context, &slot, &event);
    EXPECT_EQ(slot, nullptr);  // NCCL then asks for no record and no stop
    event.parentObj = operation;
    event.kernelCh.channelId = 64;
    slot = kOldContent;
    caller.table->startEvent(caller.context, &slot, &event);
    EXPECT_EQ(slot, nullptr);
    caller.Finalize();
    EXPECT_EQ(Segment().Started(), 1u);
    EXPECT_EQ(Segment().Completed(), 0u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kUnknownHandle, 1},
                                      {Loss::kChannelOutOfRange, 1},
                                      {Loss::kIncompleteAtFinalize, 1}}));
  });
}

TEST_F(HandleSurvival, Survives06_SlotsOfACapturedPlanThatPersistOverReplays) {
  InEach<1, 2, 3, 4, 5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group_api = caller.GroupApi(true);
    void* call = caller.Call(group_api, {}, true);
    caller.Stop(call);
    caller.Stop(group_api);
    void* group = nullptr;
    void* operation = nullptr;
    constexpr int kReplays = 50;
    OnHostThread([&] {
      for (int replay = 0; replay < kReplays; ++replay) {
        caller.Stop(operation);  // of the replay before: nothing nulled the slots
        caller.Stop(group);
        group = caller.Group();
        operation = caller.Operation({}, call, group);
        caller.Stop(operation);
        caller.Stop(group);
        caller.Complete(operation);
      }
    });
    caller.Finalize();
    ExpectAllTimed(Segment(), kReplays);
    EXPECT_EQ(Segment().Calls(), kCallsOf<kVersion>);
    const Losses lost = Segment().Lost();  // only of the groups: an operation's stop says nothing
    EXPECT_LE(lost.size(), 1u);
    EXPECT_LE(Segment().Lost(Loss::kStaleHandle), kReplays - 1u);
    EXPECT_EQ(lost.size(), Segment().Lost(Loss::kStaleHandle) > 0 ? 1u : 0u);
  });
}

TEST_F(HandleSurvival, Survives07_ProxyStepStartedAgainAndAgainWithoutAStop) {
  InEveryVersion([&]<int kVersion>() {
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    void* proxy = caller.Proxy(operation);
    void* const first = caller.Step(proxy, 0);
    EXPECT_EQ(first != nullptr, Caller<kVersion>::kHasSteps);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(caller.Step(proxy, 0), first);
    caller.Stop(proxy);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().Lost(),
              Caller<kVersion>::kHasSteps ? Only({{Loss::kNetworkIncomplete, 1}}) : Losses());
  });
}

TEST_F(HandleSurvival, Survives08_StateRepeatedOnEachPoll) {
  constexpr int kSendPeerWait = 20;
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    const uint64_t start_ns = GpuNow();
    void* kernels[2] = {caller.Kernel(operation, 0, start_ns),
                        caller.Kernel(operation, 1, start_ns)};
    for (int poll = 0; poll < 1000; ++poll) {
      // Not a time, though it stands where a kernel channel's time would.
      uint64_t transferred_bytes = 1;
      caller.Record(kernels[0], kSendPeerWait, &transferred_bytes);
      caller.Record(operation, kSendPeerWait, &transferred_bytes);
    }
    for (void* kernel : kernels) caller.StopKernel(kernel, start_ns + 30);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().BusyNs(), 30u);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kUnknownHandle, 2000}})) << "no steps";
  });
}

TEST_F(HandleSurvival, Survives09_ProxyOpWithoutAStopAndItsHandleUsedAgain) {
  InEveryVersion([&]<int kVersion>() {
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
    Caller<kVersion> caller;
    constexpr uint64_t kOperations = 3000, kEach = 7;
    void* lost = nullptr;
    for (uint64_t i = 0; i < kOperations; ++i) {
      void* proxy = caller.Proxy(caller.Announce());
      if (i % kEach != 0) caller.Stop(proxy);
      if (lost == nullptr) lost = proxy;
    }
    caller.Stop(lost);  // the pooled slot still held it
    caller.Finalize();
    const View view = Segment();
    EXPECT_EQ(view.Started(), kOperations);
    EXPECT_EQ(view.Completed() + view.Lost(Loss::kIncompleteAtFinalize), kOperations);
    EXPECT_EQ(view.InFlight(), 0u);
    EXPECT_EQ(view.Lost(Loss::kOperationAbandoned) + view.Lost(Loss::kIncompleteAtFinalize),
              (kOperations + kEach - 1) / kEach);
    EXPECT_EQ(view.Lost(Loss::kStaleHandle), 1u);
    EXPECT_EQ(view.Lost(Loss::kInFlightFull), 0u) << "those that are overtaken make room";
  });
}

// None of them has ended: those that are followed show the hang, and none is given up for another.
TEST_F(HandleSurvival, KeepsTheFirstOperationsOfAHangThoughManyFollow) {
  InEveryVersion([&]<int kVersion>() {
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
    Caller<kVersion> caller;
    constexpr uint64_t kOperations = 600;
    for (uint64_t i = 0; i < kOperations; ++i) caller.Proxy(caller.Announce());
    const View view = Segment();
    EXPECT_EQ(view.Started(), kOperations);
    EXPECT_EQ(view.Completed(), 0u);
    EXPECT_EQ(view.Lost(Loss::kOperationAbandoned), 0u);
    EXPECT_EQ(view.Lost(Loss::kInFlightFull), kOperations - layout::kInFlightEntries);
  });
}

// CollNet and NVLS: their proxy operations are announced, and neither begin nor end.
TEST_F(HandleSurvival, OperationsOfTransportsThatReportNothingAreUnseenAndBlockNoOthers) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
    Caller<kVersion> caller;
    constexpr uint64_t kOperations = 2000;
    for (uint64_t i = 0; i < kOperations; ++i) {
      void* operation = caller.Announce();
      caller.Queue(operation);
      if (i % 2 != 0) caller.Stop(caller.Proxy(operation));
    }
    const View view = Segment();
    EXPECT_EQ(view.Started(), kOperations);
    EXPECT_GE(view.Completed(), kOperations - layout::kInFlightEntries);
    EXPECT_EQ(view.Lost(Loss::kOperationAbandoned), 0u);
    EXPECT_EQ(view.Lost(Loss::kInFlightFull), 0u);
  });
}

// More than there are entries: the first are followed, and none is over before the launch runs.
TEST_F(HandleSurvival, ALaunchOfManyOperationsEndsNoneOfItsOwn) {
  InEach<4>([&]<int kVersion>() {
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
    Caller<kVersion> caller;
    constexpr uint64_t kOperations = 2046;
    void* group = caller.Group();
    for (uint64_t i = 0; i < kOperations; ++i)
      caller.Operation({.function = "Send", .peer = static_cast<int>(2 + i % 5)}, nullptr, group);
    caller.Stop(group);
    const View view = Segment();
    EXPECT_EQ(view.Started("Send"), kOperations);
    EXPECT_EQ(view.Completed("Send"), 0u);
    EXPECT_EQ(view.Lost(Loss::kInFlightFull), kOperations - layout::kInFlightEntries);
    EXPECT_EQ(view.Lost(Loss::kStaleHandle), 0u);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
