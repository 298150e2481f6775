// SPDX-License-Identifier: Apache-2.0
// What the plugin survives in threads and life times: items 26 to 37 of what NCCL releases are known to do.
#include <semaphore.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::survival {
namespace {

class ThreadSurvival : public SurvivalTest {};

constexpr int kThreads = 16;

template <typename Body>
void InThreads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ThreadSurvival, Survives26_ConcurrentInits) {
  InEveryVersion([&]<int kVersion>() {
    std::array<void*, kThreads> contexts{};
    InThreads(kThreads, [&](int i) {
      Caller<kVersion> caller({.id = static_cast<uint64_t>(100 + i)});
      contexts[static_cast<size_t>(i)] = caller.context;
      for (int n = 0; n < 50; ++n) caller.Run();
      caller.Finalize();
    });
    const View view = Segment();
    std::map<void*, int> seen;
    for (void* context : contexts) ++seen[context];
    EXPECT_EQ(seen.size(), static_cast<size_t>(kThreads));
    for (size_t slot = 0; slot < kThreads; ++slot) {
      EXPECT_EQ(view.Started("AllReduce", slot), 50u);
      EXPECT_EQ(view.Timed("AllReduce", slot), 50u);
      EXPECT_EQ(view.State(slot), layout::SlotState::kClosed);
    }
    EXPECT_EQ(view.Lost(), Losses());
  });
}

// The stand-in for the CUDA driver: loaded as the real one would be.
struct Driver {
  Driver() : library(dlopen("plugin/survival/libsurvival-cuda.so", RTLD_NOW | RTLD_GLOBAL)) {
    EXPECT_NE(library, nullptr) << dlerror();
    sem_init(Find<sem_t>("survival_cuda_entered"), 0, 0);
    sem_init(Find<sem_t>("survival_cuda_release"), 0, 0);
  }
  template <typename Object>
  Object* Find(const char* name) const {
    return static_cast<Object*>(dlsym(library, name));
  }
  int calls() const { return Find<std::atomic<int>>("survival_cuda_calls")->load(); }
  void* library;
};

TEST_F(ThreadSurvival, Survives27_CallbacksOnAHostFunctionThreadMakeNoCudaCall) {
  InEveryVersion([&]<int kVersion>() {
    Driver driver;
    Caller<kVersion> caller;
    const int calls_of_init = driver.calls();
    EXPECT_EQ(calls_of_init, 1) << "or this test would not see a call";
    void* group_api = caller.GroupApi(true);
    void* call = caller.Call(group_api, {}, true);
    caller.Stop(group_api);
    OnHostThread([&] {
      for (int replay = 0; replay < 100; ++replay) caller.Complete(caller.Launch({}, call));
    });
    caller.Finalize();
    EXPECT_EQ(driver.calls(), calls_of_init);
    EXPECT_EQ(Segment().Timed(), 100u);
  });
}

// A host function announces replays while the thread that calls announces its own. With CUDA_LAUNCH_BLOCKING it
// announces every call.
TEST_F(ThreadSurvival, Survives27_LaunchesThatTwoThreadsAnnounceHaveHandlesOfTheirOwn) {
  constexpr size_t kLaunches = 300'000;
  InEveryVersion([&]<int kVersion>() {
    for (const bool is_blocking : {false, true}) {
      InChild([&] {
        if (is_blocking) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
        Caller<kVersion> caller;
        void* group_api = caller.GroupApi(true);
        caller.Call(group_api, {}, !is_blocking);
        caller.Stop(group_api);
        std::array<std::vector<void*>, 2> handles;
        std::atomic<int> ready{0};
        InThreads(2, [&](int i) {
          std::vector<void*>& own = handles[static_cast<size_t>(i)];
          own.reserve(2 * kLaunches);
          ++ready;
          while (ready.load() != 2) continue;
          for (size_t n = 0; n < kLaunches; ++n) caller.Stop(own.emplace_back(caller.Group()));
        });
        std::vector<void*>& all = handles[0];
        all.insert(all.end(), handles[1].begin(), handles[1].end());
        std::sort(all.begin(), all.end());
        std::set<void*> repeated;
        for (size_t i = 1; i < all.size(); ++i) {
          if (all[i] == all[i - 1]) repeated.insert(all[i]);
        }
        EXPECT_LE(repeated.size(), 1u) << "launches that are not followed, because the ring was full, have one handle";
        EXPECT_NE(all.front(), all.back());
      });
    }
  });
}

// global_rank would break its series if it came back.
TEST_F(ThreadSurvival, KnowsForGoodThatItsProcessHadTwoGpus) {
  InEveryVersion([&]<int kVersion>() {
    Driver driver;
    Caller<kVersion> first, again({.id = 2});
    EXPECT_FALSE(Segment().RankNumbersProcess());
    driver.Find<std::atomic<int>>("survival_cuda_device")->store(1);
    Caller<kVersion> second({.id = 3});
    EXPECT_TRUE(Segment().RankNumbersProcess());
    second.Finalize();
    again.Finalize();
    driver.Find<std::atomic<int>>("survival_cuda_device")->store(0);
    Caller<kVersion> last({.id = 4});
    EXPECT_TRUE(Segment().RankNumbersProcess());
  });
}

// One communicator of more ranks than the job has processes, before anybody can scrape its segment.
TEST_F(ThreadSurvival, KnowsAtItsFirstInitThatRankNumbersProcesses) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> two({.ranks = 2});
    EXPECT_FALSE(Segment().RankNumbersProcess());
    Caller<kVersion> four({.id = 2, .ranks = 4});
    EXPECT_TRUE(Segment().RankNumbersProcess());
  });
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

TEST_F(ThreadSurvival, Survives28_NoCallbackWaitsForAnInitThatIsBlocked) {
  InEveryVersion([&]<int kVersion>() {
    Driver driver;
    Caller<kVersion> caller;
    driver.Find<std::atomic<bool>>("survival_cuda_is_held")->store(true);
    std::thread other([] { Caller<kVersion> blocked({.id = 2}); });
    sem_wait(driver.Find<sem_t>("survival_cuda_entered"));  // it is inside init now, with every lock it takes
    for (int i = 0; i < 1000; ++i) caller.Run();
    caller.Stop(kOldContent);
    EXPECT_EQ(Segment().Started(), 1000u);
    EXPECT_GE(Segment().Timed(), 999u);
    sem_post(driver.Find<sem_t>("survival_cuda_release"));
    other.join();
    EXPECT_EQ(Segment().State(1), layout::SlotState::kLive);
  });
}

TEST_F(ThreadSurvival, Survives29_EventsWithAFinalizedContext) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    caller.Run();
    void* open = caller.Announce();
    void* part = Caller<kVersion>::kHasKernels ? caller.Kernel(open, 0, GpuNow()) : caller.Proxy(open);
    caller.Finalize();
    const uint64_t completed = Segment().Completed();
    caller.StopKernel(part, GpuNow());
    caller.Complete(open);
    EXPECT_EQ(caller.Group(), nullptr);
    EXPECT_EQ(caller.Operation({}, nullptr, nullptr), nullptr);
    EXPECT_EQ(caller.Start(caller.Event(abi::kProxyCtrl)), nullptr);
    caller.Finalize();  // and once more
    EXPECT_EQ(Segment().Started(), 2u);
    EXPECT_EQ(Segment().Completed(), completed);
    EXPECT_EQ(completed, 1u);
    EXPECT_EQ(Segment().InFlight(), 0u);
    EXPECT_EQ(Segment().Lost(Loss::kIncompleteAtFinalize), 1u);
    EXPECT_EQ(Segment().Lost(Loss::kUnknownContext), 3u);
    EXPECT_GE(Segment().Lost(Loss::kAfterCompletion), 2u);
    EXPECT_EQ(Segment().Lost().size(), 3u);
  });
}

TEST_F(ThreadSurvival, Survives29_FinalizeWhileEventsStillCome) {
  InEach<1, 3, 4, 7>([&]<int kVersion>() {
    for (size_t slot = 0; slot < 30; ++slot) {
      Caller<kVersion> caller;
      const View view = Segment();
      const uint64_t unknown_before = view.Lost(Loss::kUnknownContext);
      const uint64_t incomplete_before = view.Lost(Loss::kIncompleteAtFinalize);
      std::atomic<bool> is_over{false};
      std::thread events([&] {
        while (!is_over.load()) caller.Run();
      });
      while (view.Started("AllReduce", slot) < 100) std::this_thread::yield();
      caller.Finalize();
      while (view.Lost(Loss::kUnknownContext) < unknown_before + 100) std::this_thread::yield();
      is_over.store(true);
      events.join();
      // An operation that began at this very moment may stay in flight; no other, and none counts twice.
      const uint64_t incomplete = view.Lost(Loss::kIncompleteAtFinalize) - incomplete_before;
      const uint64_t ended = view.Completed("AllReduce", slot) + incomplete;
      EXPECT_LE(ended, view.Started("AllReduce", slot));
      // By proxies alone, one of which no proxy has told cannot be seen to be open.
      const uint64_t unseen = Caller<kVersion>::kHasKernels ? 0 : 1;
      EXPECT_LE(view.Started("AllReduce", slot), ended + view.InFlight(slot) + unseen);
      EXPECT_LE(view.InFlight(slot), 1u);
      EXPECT_LE(view.Timed("AllReduce", slot), view.Completed("AllReduce", slot));
    }
  });
}

constexpr int kTooMany = 5;  // more closes than there were opens

TEST_F(ThreadSurvival, Survives30_CloseOfTheLibraryWhileItIsInUse) {
  InEveryVersion([&]<int kVersion>() {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    Caller<kVersion> caller;
    for (int i = 0; i < kTooMany; ++i) dlclose(library);
    caller.Run();
    caller.Finalize();
    caller.Run();
    EXPECT_EQ(Segment().Started(), 1u);
    EXPECT_EQ(Segment().Timed(), 1u);
  });
}

TEST_F(ThreadSurvival, Survives31_NoInitEverReturnsAnError) {
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

TEST_F(ThreadSurvival, Survives32_EveryCallbackBeforeTheFirstInit) {
  InEveryVersion([&]<int kVersion>() {
    const auto* table = LoadTable<kVersion>();
    ASSERT_NE(table->startEvent, nullptr);
    ASSERT_NE(table->stopEvent, nullptr);
    ASSERT_NE(table->recordEventState, nullptr);
    ASSERT_NE(table->finalize, nullptr);
    ASSERT_STREQ(table->name, "nccl-exporter");
    auto event = Caller<kVersion>::Event(abi::kColl);
    void* slot = kOldContent;
    abi::StateArgs args{1};
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

TEST_F(ThreadSurvival, Survives33_FinalizeWithNullContext) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    EXPECT_EQ(caller.table->finalize(nullptr), abi::kSuccess);
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(Segment().Timed(), 1u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ThreadSurvival, Survives34_ReloadInTheSameProcess) {
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
      EXPECT_EQ(Segment().Timed("AllReduce", load), 2u);
    }
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ThreadSurvival, Survives34_AHundredThousandCommunicatorsOfOneProcess) {
  InEach<6>([&]<int kVersion>() {
    constexpr uint64_t kCommunicators = 100'000;
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
    EXPECT_EQ(view.Started("AllReduce", overflow), kCommunicators - overflow);
    EXPECT_EQ(view.Lost(), Only({{Loss::kNoFreeCommunicatorSlot, kCommunicators - overflow}}));
  });
}

TEST_F(ThreadSurvival, Survives34_CommunicatorsOneAfterAnotherTakeThePlaceOfTheOld) {
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
    EXPECT_EQ(view.State(2), layout::SlotState::kFree) << "or its memory would be taken for nothing";
  });
}

TEST_F(ThreadSurvival, Survives35_NestedGroupsThatSplitTheGroupOfCalls) {
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

TEST_F(ThreadSurvival, Survives36_GroupThatSpansCommunicators) {
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

TEST_F(ThreadSurvival, Survives36_CapturesOnSeveralCommunicatorsAtATime) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    constexpr size_t kCommunicators = 8;
    std::vector<Caller<kVersion>> callers;
    std::vector<void*> groups, calls;
    for (size_t i = 0; i < kCommunicators; ++i) callers.push_back(Caller<kVersion>({.id = i}));
    for (Caller<kVersion>& caller : callers) groups.push_back(caller.GroupApi(true));
    for (size_t i = 0; i < kCommunicators; ++i) calls.push_back(callers[i].Call(groups[i], {}, true));
    for (size_t i = 0; i < kCommunicators; ++i) callers[i].Launch({}, calls[i]);  // announced at capture: not run
    for (size_t i = 0; i < kCommunicators; ++i) EXPECT_EQ(Segment().Started("AllReduce", i), 0u);
    for (size_t i = 0; i < kCommunicators; ++i) callers[i].Stop(groups[i]);
    OnHostThread([&] {
      for (size_t i = 0; i < kCommunicators; ++i) callers[i].Complete(callers[i].Launch({}, calls[i]));
    });
    for (size_t i = 0; i < kCommunicators; ++i) EXPECT_EQ(Segment().Timed("AllReduce", i), 1u);
  });
}

TEST_F(ThreadSurvival, Survives37_EventsThatSomebodyElseSwitchedOn) {
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
          void* kernels[2] = {caller.Kernel(operation, 0, start_ns), caller.Kernel(operation, 1, start_ns)};
          const uint64_t stop_ns = GpuNow();
          EXPECT_EQ(proxy == nullptr, has_kernel_times);
          for (void* kernel : kernels) EXPECT_EQ(kernel != nullptr, has_kernel_times);
          caller.StopKernel(kernels[0], stop_ns);
          if (proxy != nullptr) caller.Stop(proxy);
          caller.StopKernel(kernels[1], stop_ns);
          busy_ns += stop_ns - start_ns;
        }
        caller.Finalize();
        EXPECT_EQ(Segment().Timed(), 20u);
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

TEST_F(ThreadSurvival, Survives37_TwoCopiesOfNcclWithVersionsOfTheirOwn) {
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
}  // namespace nccl_exporter::survival
