// SPDX-License-Identifier: Apache-2.0
// Life times that the plugin survives: items 30 to 37 of what NCCL releases are known to do.
#include <thread>
#include <vector>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

class LifetimeSurvival : public SurvivalTest {};

constexpr int kTooMany = 5;  // more closes than there were opens

TEST_F(LifetimeSurvival, Survives30_CloseOfTheLibraryWhileItIsInUse) {
  InEveryVersion([&]<int kVersion>() {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    Caller<kVersion> caller;
    for (int i = 0; i < kTooMany; ++i) dlclose(library);
    caller.Run();
    caller.Finalize();
    caller.Run();
    EXPECT_EQ(Segment().Started(), 1u);
    EXPECT_EQ(Segment().Ended(), 1u);
  });
}

TEST_F(LifetimeSurvival, Survives31_NoInitEverReturnsAnError) {
  const auto expect_nothing_but_success = [&]<int kVersion>() {
    Caller<kVersion> caller, second;
    for (const Caller<kVersion>* each : {&caller, &second}) {
      EXPECT_EQ(each->result, abi::kSuccess);
      EXPECT_EQ(each->context, nullptr);
      EXPECT_EQ(each->mask, 0);
    }
    caller.Run();  // NCCL 2.28 and 2.29 go on with events
    EXPECT_EQ(caller.Group(), nullptr);
    caller.Finalize();
    EXPECT_TRUE(Segments().empty());
  };
  setenv("NCCL_EXPORTER_ENABLE", "0", 1);
  InEveryVersion(expect_nothing_but_success);
  unsetenv("NCCL_EXPORTER_ENABLE");
  setenv("NCCL_EXPORTER_DIR", "/nonexistent/of/this/name", 1);
  InEveryVersion(expect_nothing_but_success);
  setenv("NCCL_EXPORTER_DIR", directory_.c_str(), 1);
  InEveryVersion([&]<int kVersion>() {
    const auto* table = LoadTable<kVersion>();
    int mask = 0;
    void* context = kOldContent;
    if constexpr (kVersion <= 3) {
      EXPECT_EQ(table->init(nullptr, &mask) | table->init(&context, nullptr), abi::kSuccess);
    } else if constexpr (kVersion == 4) {
      EXPECT_EQ(table->init(nullptr, &mask, nullptr, 0, 0, 0, 0, nullptr), abi::kSuccess);
    } else {
      EXPECT_EQ(table->init(nullptr, 0, &mask, nullptr, 0, 0, 0, nullptr), abi::kSuccess);
    }
    Caller<kVersion> odd({.id = 0, .rank = -1, .ranks = -5});
    EXPECT_EQ(odd.result, abi::kSuccess);
    odd.Run({.function = "AllGather", .count = 100, .datatype = "ncclInt8"});
    EXPECT_EQ(Segment().Bytes("AllGather"), 100u);
  });
}

TEST_F(LifetimeSurvival, Survives32_EveryCallbackBeforeTheFirstInit) {
  InEveryVersion([&]<int kVersion>() {
    const auto* table = LoadTable<kVersion>();
    ASSERT_NE(table->startEvent, nullptr);
    ASSERT_NE(table->stopEvent, nullptr);
    ASSERT_NE(table->recordEventState, nullptr);
    ASSERT_NE(table->finalize, nullptr);
    ASSERT_STREQ(table->name, "nccl-exporter");
    auto event = Caller<kVersion>::Event(abi::kColl);
    void* slot = kOldContent;
    abi::StateArgs args{.pTimer = 1};
    EXPECT_EQ(table->startEvent(nullptr, &slot, &event), abi::kSuccess);
    EXPECT_EQ(slot, nullptr);
    EXPECT_EQ(table->stopEvent(kOldContent), abi::kSuccess);
    EXPECT_EQ(table->recordEventState(kOldContent, abi::kStateKernelChStop, &args), abi::kSuccess);
    EXPECT_EQ(table->finalize(kOldContent), abi::kSuccess);
    EXPECT_TRUE(Segments().empty());
    Caller<kVersion> caller;
    caller.Run();
    EXPECT_EQ(Segment().Started(), 1u);
  });
}

TEST_F(LifetimeSurvival, Survives33_FinalizeWithNullContext) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    EXPECT_EQ(caller.table->finalize(nullptr), abi::kSuccess);
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(Segment().Ended(), 1u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(LifetimeSurvival, Survives34_ReloadInTheSameProcess) {
  InEveryVersion([&]<int kVersion>() {
    void* old_call = nullptr;
    void* old_operation = nullptr;
    for (size_t load = 0; load < 5; ++load) {
      void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
      Caller<kVersion> caller({.id = 10 + load});
      caller.Stop(old_call);  // NCCL's thread-local slot outlives the plugin's load
      caller.Stop(old_operation);
      caller.Run();
      old_call = caller.Call(nullptr);
      old_operation = caller.Announce();
      caller.Complete(old_operation);
      caller.Finalize();
      for (int i = 0; i < kTooMany; ++i) dlclose(library);
      EXPECT_EQ(Segment().Slot(load)->communicator_id, 10 + load);
      EXPECT_EQ(Segment().Ended("AllReduce", load), 2u);
    }
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(LifetimeSurvival, Survives34_TwentyThousandCommunicatorsOfOneProcess) {
  InEach<6>([&]<int kVersion>() {
#ifdef __SANITIZE_THREAD__
    constexpr uint64_t kCommunicators = 2'000;  // each takes 20 times as long
#else
    constexpr uint64_t kCommunicators = 20'000;
#endif
    Caller<kVersion> caller({.id = 1});
    caller.Run();
    caller.Finalize();
    const uint64_t start_ns = NowNs();
    for (uint64_t id = 2; id <= kCommunicators; ++id) {
      caller.Init({.id = id});
      caller.Run();
      caller.Finalize();
    }
    const double each_ns = static_cast<double>(NowNs() - start_ns) / (kCommunicators - 1);
    std::printf("init, one AllReduce, finalize: %.1f us a communicator\n", each_ns / 1000);
    const View view = Segment();
    const size_t overflow = view.header()->slot_count - 1;
    for (size_t slot = 0; slot < overflow; ++slot) EXPECT_EQ(view.Timed("AllReduce", slot), 1u);
    EXPECT_EQ(view.Started("AllReduce", overflow), 0u);
    EXPECT_EQ(view.Lost(), Losses());
  });
}

// The story of weight updates and of tests: finalized communicators held all slots.
TEST_F(LifetimeSurvival, Survives34_ALiveCommunicatorIsFollowedHoweverManyWereFinalized) {
  InEach<1, 4, 7>([&]<int kVersion>() {
    Caller<kVersion> first({.id = 1});
    void* const launch = first.Group();
    void* const late = first.Operation({}, nullptr, launch);
    first.Stop(launch);
    first.Finalize();
    for (uint64_t id = 2; id <= 300; ++id) {
      Caller<kVersion> caller({.id = id});
      caller.Run();
      caller.Finalize();
    }
    Caller<kVersion> live({.id = 301});
    live.Run();
    first.Complete(late);  // of a generation that is over
    const View view = Segment();
    const size_t overflow = view.header()->slot_count - 1;
    size_t live_slot = overflow;
    for (size_t slot = 0; slot < overflow; ++slot) {
      EXPECT_NE(view.State(slot), layout::SlotState::kFree);
      if (view.State(slot) == layout::SlotState::kLive) live_slot = slot;
      EXPECT_EQ(view.Started("AllReduce", slot), 1u) << slot;
      // By proxies the last one is complete with the next, or at finalize.
      if (slot != live_slot) {
        EXPECT_EQ(view.Completed("AllReduce", slot), 1u) << slot;
      }
    }
    EXPECT_EQ(view.Slot(live_slot)->communicator_id, 301u);
    EXPECT_EQ(view.Timed("AllReduce", live_slot), kVersion >= 4 ? 1u : 0u);
    EXPECT_EQ(view.Started("AllReduce", overflow), 0u);
    EXPECT_EQ(view.Lost(Loss::kNoFreeCommunicatorSlot), 0u);
  });
}

TEST_F(LifetimeSurvival, Survives34_CommunicatorsOneAfterAnotherTakeThePlaceOfTheOld) {
  setenv("NCCL_EXPORTER_RETENTION_SECONDS", "1", 1);
  InEach<4>([&]<int kVersion>() {
    Caller<kVersion> first({.id = 1});
    first.Run();
    first.Finalize();
    Caller<kVersion> too_early({.id = 2});
    usleep(1'050'000);
    Caller<kVersion> later({.id = 3});
    later.Run();
    first.Run();  // late events of a context that is gone
    const View view = Segment();
    EXPECT_EQ(view.Slot(0)->communicator_id, 3u);
    EXPECT_EQ(view.Started("AllReduce", 0), 1u);
    EXPECT_EQ(view.Slot(1)->communicator_id, 2u);
    EXPECT_EQ(view.State(2), layout::SlotState::kFree)
        << "or its memory would be taken for nothing";
  });
}

TEST_F(LifetimeSurvival, Survives35_NestedGroupsThatSplitTheGroupOfCalls) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* calls[3];
    void* outer = caller.GroupApi();
    calls[0] = caller.Call(outer);
    caller.Stop(calls[0]);
    caller.Stop(outer);  // at the inner end
    void* second = caller.GroupApi();
    for (int i = 1; i < 3; ++i) caller.Stop(calls[i] = caller.Call(second));
    void* group = caller.Group();
    void* operations[3];
    for (int i = 0; i < 3; ++i) operations[i] = caller.Operation({}, calls[i], group);
    caller.Stop(group);
    caller.Stop(second);
    for (void* operation : operations) caller.Complete(operation);
    EXPECT_EQ(Segment().Calls(), 3u);
    EXPECT_EQ(Segment().Started(), 3u);
    EXPECT_EQ(Segment().Timed(), 3u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(LifetimeSurvival, Survives36_GroupThatSpansCommunicators) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> first({.id = 1}), second({.id = 2});
    void* group_api = first.GroupApi();
    void* call = first.Call(group_api);
    void* second_call = second.Call(group_api);
    void* group = first.Group();
    void* operation = first.Operation({}, call, group);
    // Not what NCCL does, but what it would take to mix them up: the other communicator's launch.
    void* second_operation = second.Operation({}, second_call, group);
    first.Stop(group);
    first.Stop(group_api);
    const uint64_t busy_ns = first.Complete(operation);
    const uint64_t second_busy_ns = second.Complete(second_operation);
    EXPECT_EQ(Segment().BusyNs("AllReduce", 0), busy_ns);
    EXPECT_EQ(Segment().BusyNs("AllReduce", 1), second_busy_ns);
    for (size_t slot : {0, 1}) EXPECT_EQ(Segment().Calls("AllReduce", slot), 1u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(LifetimeSurvival, Survives36_CapturesOnSeveralCommunicatorsAtATime) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    constexpr size_t kCommunicators = 8;
    std::vector<Caller<kVersion>> callers;
    std::vector<void*> groups, calls;
    for (size_t i = 0; i < kCommunicators; ++i) callers.push_back(Caller<kVersion>({.id = i}));
    for (Caller<kVersion>& caller : callers) groups.push_back(caller.GroupApi(true));
    for (size_t i = 0; i < kCommunicators; ++i)
      calls.push_back(callers[i].Call(groups[i], {}, true));
    for (size_t i = 0; i < kCommunicators; ++i)
      callers[i].Launch({}, calls[i]);  // announced at capture: not run
    for (size_t i = 0; i < kCommunicators; ++i) EXPECT_EQ(Segment().Started("AllReduce", i), 0u);
    for (size_t i = 0; i < kCommunicators; ++i) callers[i].Stop(groups[i]);
    OnHostThread([&] {
      for (size_t i = 0; i < kCommunicators; ++i)
        callers[i].Complete(callers[i].Launch({}, calls[i]));
    });
    for (size_t i = 0; i < kCommunicators; ++i) EXPECT_EQ(Segment().Timed("AllReduce", i), 1u);
  });
}

TEST_F(LifetimeSurvival, Survives37_EventsThatSomebodyElseSwitchedOn) {
  InEveryVersion([&]<int kVersion>() {
    for (const char* kernel_timing : {"on", "off"}) {
      InChild([&] {
        setenv("NCCL_EXPORTER_KERNEL_TIMING", kernel_timing, 1);
        Caller<kVersion> caller;
        const bool has_kernel_times = (caller.mask & abi::kKernelCh) != 0;
        uint64_t busy_ns = 0;
        for (int i = 0; i < 20; ++i) {
          void* operation = caller.Announce();
          void* proxy = caller.Proxy(operation);
          const uint64_t start_ns = GpuNow();
          void* kernels[2] = {caller.Kernel(operation, 0, start_ns),
                              caller.Kernel(operation, 1, start_ns)};
          const uint64_t stop_ns = GpuNow();
          EXPECT_TRUE(proxy != nullptr || has_kernel_times);
          for (void* kernel : kernels) EXPECT_EQ(kernel != nullptr, has_kernel_times);
          caller.StopKernel(kernels[0], stop_ns);
          if (proxy != nullptr) caller.Stop(proxy);
          caller.StopKernel(kernels[1], stop_ns);
          busy_ns += stop_ns - start_ns;
        }
        caller.Finalize();
        EXPECT_EQ(Segment().Ended(), 20u);
        EXPECT_EQ(Segment().Lost(), Losses());
        if (has_kernel_times && kVersion > 3) {
          EXPECT_EQ(Segment().BusyNs(), busy_ns);
        } else {
          EXPECT_LT(Segment().BusyNs(), 1'000'000'000u) << "the CPU's clock alone";
        }
      });
    }
  });
}

TEST_F(LifetimeSurvival, Survives37_TwoCopiesOfNcclWithVersionsOfTheirOwn) {
  InChild([&] {
    Caller<4> old_copy({.id = 4});
    Caller<6> new_copy({.id = 6});
    const int old_mask = old_copy.mask, new_mask = new_copy.mask;
    EXPECT_EQ(old_mask & abi::kCeColl, 0) << "a bit that v4 does not have";
    EXPECT_NE(new_mask & abi::kCeColl, 0);
    uint64_t old_busy_ns = 0, new_busy_ns = 0;
    std::thread other([&] {
      for (int i = 0; i < 1000; ++i) old_busy_ns += old_copy.Run();
    });
    for (int i = 0; i < 1000; ++i) new_busy_ns += new_copy.Run();
    other.join();
    Caller<6> third({.id = 7});
    EXPECT_EQ(third.mask, new_mask) << "every init of a copy stores the same";
    EXPECT_EQ(old_copy.mask, old_mask);
    const View view = Segment();
    EXPECT_EQ(view.Slot(0)->api_version, 4u);
    EXPECT_EQ(view.Slot(1)->api_version, 6u);
    EXPECT_EQ(view.BusyNs("AllReduce", 0), old_busy_ns);
    EXPECT_EQ(view.BusyNs("AllReduce", 1), new_busy_ns);
    EXPECT_EQ(view.Lost(), Losses());
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
