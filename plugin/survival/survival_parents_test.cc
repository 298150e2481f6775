// SPDX-License-Identifier: Apache-2.0
// Foreign handles and parents that are gone, which the plugin survives: items 10 to 14 of what NCCL
// releases are known to do.
#include <random>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

class ParentSurvival : public SurvivalTest {};

TEST_F(ParentSurvival, Survives10_NetPluginEventsOnHandlesOfAnyBits) {
  constexpr int kNetPluginUpdate = 21;
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    caller.Run();
    std::mt19937_64 random(kVersion);
    constexpr uint64_t kStops = 20'000;
    for (uint64_t i = 0; i < kStops; ++i) {
      void* handle = reinterpret_cast<void*>(random() | 1);
      uint64_t value = random();
      caller.Record(handle, kNetPluginUpdate, &value);
      caller.Stop(handle);
    }
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    // One in 65,536 looks as if it were ours, and is then counted by another cause, or is no handle
    // that a stop has.
    EXPECT_NEAR(static_cast<double>(Segment().Lost(Loss::kUnknownHandle)), kStops, 100);
  });
}

TEST_F(ParentSurvival, Survives10_HandlesWithOneBitWrong) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    void* part = Caller<kVersion>::kHasKernels ? caller.Kernel(operation, 0, GpuNow())
                                               : caller.Proxy(operation);
    void* rest = Caller<kVersion>::kHasKernels ? caller.Kernel(operation, 1, GpuNow()) : nullptr;
    caller.StopKernel(part, GpuNow());
    caller.StopKernel(rest, GpuNow());
    caller.Finalize();
    Caller<kVersion> second;
    const Losses before = Segment().Lost();
    for (void* handle : {operation, part, caller.context, second.context}) {
      for (int bit = 0; bit < 64; ++bit) {
        void* wrong =
            reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(handle) ^ uint64_t{1} << bit);
        second.Stop(wrong);
        second.Stamp(wrong, GpuNow());
        second.Kernel(wrong, 0, GpuNow());
        second.Proxy(wrong);
        if (handle != second.context) second.StartIn(wrong, second.Event(abi::kGroup));
        if (handle != second.context && handle != caller.context) second.table->finalize(wrong);
      }
    }
    EXPECT_EQ(before, Losses());
    EXPECT_GT(Segment().Lost(Loss::kUnknownHandle), 0u);
    EXPECT_GT(Segment().Lost(Loss::kUnknownContext), 0u);
    second.Run();
    second.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().Started("AllReduce", 1), 1u);
    EXPECT_EQ(Segment().Ended("AllReduce", 1), 1u);
  });
}

TEST_F(ParentSurvival, Survives11_CollStopBeforeBetweenOrAfterItsKernelChannels) {
  InEach<3, 4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    constexpr int kPlaces = 4;  // of the two stops, among the events of the channels
    for (int place = 0; place <= kPlaces; ++place) {
      void* call = caller.Call(caller.GroupApi());
      void* group = caller.Group();
      void* operation = caller.Operation({}, call, group);
      void* kernels[2] = {nullptr, nullptr};
      for (int step = 0; step <= kPlaces; ++step) {
        if (step == place) {
          caller.Stop(operation);
          caller.Stop(group);
        }
        if (step < 2)
          kernels[step] = caller.Kernel(operation, static_cast<uint8_t>(step), GpuNow());
        if (step >= 2 && step < kPlaces) caller.StopKernel(kernels[step - 2], GpuNow());
      }
    }
    caller.Finalize();
    ExpectAllTimed(Segment(), kPlaces + 1);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

TEST_F(ParentSurvival, Survives12_ParentsThatHaveStopped) {
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* group_api = caller.GroupApi();
    caller.Stop(group_api);  // before the call: a communicator that does not block
    void* call = caller.Call(group_api);
    caller.Stop(call);
    void* group = caller.Group();
    caller.Stop(group);  // before its operation: it is then alone
    void* operation = caller.Operation({}, call, group);
    caller.Stop(operation);
    const uint64_t busy_ns = caller.Complete(operation);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().Calls(), 1u);
    EXPECT_EQ(Segment().BusyNs(), busy_ns);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

// Handles in the hands of another process that runs the same plugin.
struct Foreign {
  void* context;
  void* operation;
  void* group;
  void* part;
  pid_t pid;
};

template <int kVersion>
Foreign AskOtherProcess() {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("NCCL_EXPORTER_DIR", testing::TempDir().c_str(), 1);
    Caller<kVersion> caller({.id = 0xabc, .rank = 0});
    Foreign foreign{caller.context, nullptr, caller.Group(), nullptr, getpid()};
    foreign.operation = caller.Operation({}, nullptr, foreign.group);
    foreign.part =
        kVersion >= 3 ? caller.Kernel(foreign.operation, 0, 1) : caller.Proxy(foreign.operation);
    const bool is_sent = write(pipes[1], &foreign, sizeof(foreign)) == sizeof(foreign);
    _exit(is_sent ? 0 : 1);
  }
  Foreign foreign{};
  EXPECT_EQ(read(pipes[0], &foreign, sizeof(foreign)), static_cast<ssize_t>(sizeof(foreign)));
  waitpid(child, nullptr, 0);
  return foreign;
}

uint64_t SaltOf(void* handle) { return reinterpret_cast<uintptr_t>(handle) >> 48; }

TEST_F(ParentSurvival, Survives13_ContextsAndParentsOfAnotherProcess) {
  InEveryVersion([&]<int kVersion>() {
    Foreign foreign = AskOtherProcess<kVersion>();
    Caller<kVersion> caller;
    while (SaltOf(foreign.context) == SaltOf(caller.context)) foreign = AskOtherProcess<kVersion>();
    ASSERT_NE(foreign.operation, nullptr);
    void* own = caller.Announce();
    // A proxy operation on its behalf; also where the handle happens to fit here, which only the
    // pid shows.
    for (void* parent : {foreign.operation, own}) {
      auto event = caller.Event(abi::kProxyOp, parent);
      event.proxyOp = {foreign.pid, 0, 0, 4, 1 << 19, 1};
      EXPECT_EQ(caller.StartIn(foreign.context, event), nullptr);
    }
    EXPECT_EQ(caller.StartIn(foreign.context, caller.Event(abi::kProxyStep, foreign.part)),
              nullptr);
    EXPECT_EQ(caller.StartIn(foreign.context, caller.Event(abi::kNetPlugin, foreign.part)),
              nullptr);
    EXPECT_EQ(caller.StartIn(foreign.context, caller.Event(abi::kGroup)), nullptr);
    EXPECT_EQ(caller.StartIn(foreign.context, caller.Coll({}, nullptr, foreign.group)), nullptr);
    EXPECT_EQ(caller.Kernel(foreign.operation, 0, GpuNow()), nullptr);
    for (void* handle : {foreign.operation, foreign.group, foreign.part}) caller.Stop(handle);
    caller.table->finalize(foreign.context);
    caller.Complete(own);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().Lost(),
              Only({{Loss::kForeignProcess, 2},
                    {Loss::kUnknownContext, 3},
                    {Loss::kUnknownHandle, 3u + (Caller<kVersion>::kHasKernels ? 1 : 0) +
                                               (Caller<kVersion>::kHasSteps ? 1 : 0)}}));
    for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
      if (entry.path().extension() == layout::kFileSuffix) std::filesystem::remove(entry.path());
    }
  });
}

TEST_F(ParentSurvival, Survives13_AForeignGroupThatBelongsToNoLaunchHere) {
  InEveryVersion([&]<int kVersion>() {
    const Foreign foreign = AskOtherProcess<kVersion>();
    Caller<kVersion> caller;
    void* operation = caller.Operation({}, foreign.operation, foreign.group);
    caller.Stop(operation);
    caller.Complete(operation);
    caller.Finalize();
    ExpectAllTimed(Segment(), 1);
    EXPECT_EQ(Segment().Lost(), Losses());
    for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
      if (entry.path().extension() == layout::kFileSuffix) std::filesystem::remove(entry.path());
    }
  });
}

TEST_F(ParentSurvival, Survives14_MergedProxyOperationsUnderTheFirstOnesContext) {
  InEach<1>([&]<int kVersion>() {
    Caller<kVersion> first({.id = 1}), second({.id = 2});
    void* of_first = first.Announce();
    void* of_second = second.Announce();
    first.Stop(first.Proxy(of_first));
    first.Stop(first.Proxy(of_second));  // with the first one's context
    first.Finalize();
    second.Finalize();
    for (size_t slot : {0, 1}) {
      EXPECT_EQ(Segment().Started("AllReduce", slot), 1u);
      EXPECT_EQ(Segment().Ended("AllReduce", slot), 1u);
    }
    EXPECT_EQ(Segment().Slot(1)->communicator_id, 2u);
    EXPECT_EQ(Segment().Lost(), Losses());
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
