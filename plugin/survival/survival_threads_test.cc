// SPDX-License-Identifier: Apache-2.0
// Uses of threads that the plugin survives: items 26 to 29 of what NCCL releases are known to do.
#include <semaphore.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
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
      EXPECT_EQ(view.Ended("AllReduce", slot), 50u);
      EXPECT_EQ(view.State(slot), layout::SlotState::kClosed);
    }
    EXPECT_EQ(view.Lost(), Losses());
  });
}

// The replacement of the CUDA driver: loaded as the real one would be.
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
    EXPECT_EQ(Segment().Ended(), 100u);
  });
}

// A host function announces replays while the thread that calls announces its own. With
// CUDA_LAUNCH_BLOCKING it announces every call. With NCCL_ENQUEUE_REARCH_ENABLE=1 calls are not
// announced, so that nothing shows the capture.
TEST_F(ThreadSurvival, Survives27_LaunchesThatTwoThreadsAnnounceHaveHandlesOfTheirOwn) {
  constexpr size_t kLaunches = 300'000;
  InEveryVersion([&]<int kVersion>() {
    enum class Way { kCapture, kBlocking, kNoCalls };
    for (const Way way : {Way::kCapture, Way::kBlocking, Way::kNoCalls}) {
      InChild([&] {
        if (way == Way::kBlocking) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
        Caller<kVersion> caller;
        if (way != Way::kNoCalls) {
          void* group_api = caller.GroupApi(true);
          caller.Call(group_api, {}, way == Way::kCapture);
          caller.Stop(group_api);
        }
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
        EXPECT_LE(repeated.size(), 1u)
            << "launches that are not followed, because the ring was full, have one handle";
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

// Regresses: RANK and WORLD_SIZE were read once in the life of a process, and elastic frameworks
// set them again.
TEST_F(ThreadSurvival, ReadsTheNumbersOfTheRankAtEachInit) {
  setenv("WORLD_SIZE", "8", 1);
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    setenv("RANK", "5", 1);
    setenv("LOCAL_RANK", "1", 1);
    Caller<kVersion> first({.ranks = 8});
    first.Finalize();
    setenv("RANK", "3", 1);
    setenv("WORLD_SIZE", "6", 1);
    unsetenv("LOCAL_RANK");
    Caller<kVersion> second({.id = 2, .ranks = 6});
    setenv("RANK", "abc", 1);
    Caller<kVersion> third({.id = 3, .ranks = 6});
    const View view = Segment();
    const auto numbers = [&](size_t slot) {
      return std::array{view.Slot(slot)->global_rank, view.Slot(slot)->local_rank,
                        view.Slot(slot)->world_size};
    };
    EXPECT_EQ(numbers(0), (std::array<uint64_t, 3>{6, 2, 8}));
    EXPECT_EQ(numbers(1), (std::array<uint64_t, 3>{4, 0, 6}));
    EXPECT_EQ(numbers(2), (std::array<uint64_t, 3>{0, 0, 0}));
  });
  unsetenv("WORLD_SIZE");
}

TEST_F(ThreadSurvival, KeepsTheFirstCommunicatorOfSeveralRanks) {
  InEach<1, 3>([&]<int kVersion>() {
    Caller<kVersion> unknown({.id = 4});
    EXPECT_EQ(Segment().FirstCommunicator(), 0u) << "the number of ranks is not known";
  });
  InEach<4, 7>([&]<int kVersion>() {
    Caller<kVersion> alone({.id = 4, .rank = 0, .ranks = 1});
    EXPECT_EQ(Segment().FirstCommunicator(), 0u);
    Caller<kVersion> first({.id = 5, .ranks = 2}), second({.id = 6, .ranks = 4});
    EXPECT_EQ(Segment().FirstCommunicator(), 5u);
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
    sem_wait(driver.Find<sem_t>(
        "survival_cuda_entered"));  // it is inside init now, with every lock it takes
    for (int i = 0; i < 1000; ++i) caller.Run();
    caller.Stop(kOldContent);
    EXPECT_EQ(Segment().Started(), 1000u);
    EXPECT_GE(Segment().Ended(), 999u);
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
    void* part =
        Caller<kVersion>::kHasKernels ? caller.Kernel(open, 0, GpuNow()) : caller.Proxy(open);
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
    // The part is a proxy operation whose steps were to be timed, with API v2.
    EXPECT_EQ(Segment().Lost(Loss::kStaleHandle), kVersion == 2 ? 1u : 0u);
    EXPECT_EQ(Segment().Lost().size(), kVersion == 2 ? 4u : 3u);
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
      // An operation that began at this very moment may stay in flight; no other, and none counts
      // twice.
      const uint64_t incomplete = view.Lost(Loss::kIncompleteAtFinalize) - incomplete_before;
      const uint64_t ended = view.Completed("AllReduce", slot) + incomplete;
      EXPECT_LE(ended, view.Started("AllReduce", slot));
      // With proxies alone, an operation that no proxy has reported cannot be seen to be open.
      const uint64_t unseen = Caller<kVersion>::kHasKernels ? 0 : 1;
      EXPECT_LE(view.Started("AllReduce", slot), ended + view.InFlight(slot) + unseen);
      EXPECT_LE(view.InFlight(slot), 1u);
      EXPECT_LE(view.Timed("AllReduce", slot), view.Completed("AllReduce", slot));
    }
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
