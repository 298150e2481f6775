// SPDX-License-Identifier: Apache-2.0
// Steps of proxy operations, in every version that has them: what is counted of sound ones, and
// that nothing is counted of others.
#include <iterator>
#include <limits>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

constexpr int kStepBit = abi::kProxyStep;
constexpr auto kSend = NetworkDirection::kSend, kRecv = NetworkDirection::kRecv;

class NetworkSurvival : public SurvivalTest {
 protected:
  template <typename Body>
  void InEachWithSteps(Body body) const {
    InEach<2, 3, 4, 5, 6, 7>(body);
  }
};

void ExpectNothingLost(const View& view) { EXPECT_EQ(view.Lost(), Losses()); }

TEST_F(NetworkSurvival, CountsTheStatesOfBothDirections) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    EXPECT_TRUE(caller.mask & kStepBit);
    void* operation = caller.Announce();
    const uint64_t begin_ns = NowNs();
    caller.RunProxy(operation, true);
    const uint64_t sent_ns = NowNs();
    caller.RunProxy(operation, false);
    const uint64_t received_ns = NowNs();
    const View view = Segment();
    ExpectNothingLost(view);
    using enum NetworkState;
    for (const NetworkState state : {kGpu, kPeer, kNetwork})
      EXPECT_GE(view.Waited(kSend, state), 20 * 1000u) << NameOf(state);
    for (const NetworkState state : {kPeer, kNetwork, kFlush, kGpu})
      EXPECT_GE(view.Waited(kRecv, state), 20 * 1000u) << NameOf(state);
    EXPECT_EQ(view.Waited(kSend, kFlush), 0u);
    const auto sum = [&](NetworkDirection direction) {
      return view.Waited(direction, kGpu) + view.Waited(direction, kPeer) +
             view.Waited(direction, kNetwork) + view.Waited(direction, kFlush);
    };
    EXPECT_LE(sum(kSend), sent_ns - begin_ns);
    EXPECT_LE(sum(kRecv), received_ns - sent_ns);
    for (const NetworkDirection direction : {kSend, kRecv}) {
      EXPECT_EQ(Read(view.Network(direction).operations), 1u);
      EXPECT_EQ(Read(view.Network(direction).bytes), 20 * Caller<kVersion>::kStepBytes);
    }
    EXPECT_EQ(Read(view.Slot(0)->network.share_ppm), 1'000'000u);
  });
}

TEST_F(NetworkSurvival, StillCompletesOperationsByTheirProxies) {
  setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (int i = 0; i < 10; ++i) {
      void* operation = caller.Announce();
      caller.RunProxy(operation, true, 4);
      caller.RunProxy(operation, false, 4);
    }
    const View view = Segment();
    EXPECT_EQ(view.NetworkOperations(), 20u);
    EXPECT_GE(view.Completed(), 9u);
    EXPECT_EQ(view.Timed(), 0u);
    ExpectNothingLost(view);
  });
}

TEST_F(NetworkSurvival, AsksForNoStepsWithinANodeNorWhenSwitchedOff) {
  InEach<4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller{{.nodes = 1}};
    EXPECT_FALSE(caller.mask & kStepBit);
    EXPECT_EQ(caller.Proxy(caller.Announce()), nullptr);
  });
  setenv("NCCL_EXPORTER_NETWORK_TIMING", "off", 1);
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    EXPECT_FALSE(caller.mask & kStepBit);
    caller.RunProxy(caller.Announce(), true);
    EXPECT_EQ(Segment().NetworkOperations(), 0u);
  });
  InChild([&] {
    setenv("NCCL_EXPORTER_NETWORK_TIMING", "always", 1);
    Caller<1> caller;  // 2.23
    EXPECT_FALSE(caller.mask & kStepBit);
    EXPECT_EQ(caller.Step(caller.Proxy(caller.Announce()), 0), nullptr);
  });
}

// Up to 2.27 every operation may be one of a graph.
TEST_F(NetworkSurvival, RefusesBetweenWindowsTheReplaysOfGraphsThatWereCapturedWithinOne) {
  setenv("NCCL_EXPORTER_NETWORK_TIMING", "0.001/3600", 1);
  setenv("NCCL_EXPORTER_KERNEL_TIMING", "on", 1);
  InEach<2, 3, 4, 5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* const group = caller.GroupApi(true);
    void* const call = caller.Call(group, {}, true);
    EXPECT_EQ((caller.mask & kStepBit) != 0, Caller<kVersion>::kHasCalls) << "for its graph";
    caller.Stop(call);
    caller.Stop(group);
    for (int replay = 0; replay < 3; ++replay) {
      OnHostThread([&] {
        void* const operation = caller.Launch({}, call);
        void* const proxy = caller.Proxy(operation);
        if (caller.mask & kStepBit) return;  // one hour in a thousand
        EXPECT_EQ(proxy != nullptr, kVersion == 2) << "it times operations by them";
        EXPECT_EQ(caller.Step(proxy, 0), nullptr);
      });
    }
    EXPECT_EQ(caller.Step(nullptr, 0), nullptr);
    EXPECT_EQ(Segment().NetworkOperations(), 0u);
    ExpectNothingLost(Segment());
  });
}

// Its bit was set when it was called; the window has closed since.
TEST_F(NetworkSurvival, TimesACallThatNcclAsksAboutWhenItsWindowIsOver) {
  setenv("NCCL_EXPORTER_NETWORK_TIMING", "0.001/3600", 1);
  InEach<5, 6, 7>([&]<int kVersion>() {
    Caller<kVersion> caller;
    caller.RunProxy(caller.Announce(), true);
    EXPECT_EQ(Segment().NetworkOperations(), 1u);
    ExpectNothingLost(Segment());
  });
}

TEST_F(NetworkSurvival, CountsTheBytesOfTheOperationsWhoseStepsNcclReports) {
  const auto bytes = [this](const char* function) {
    return std::pair(Segment().Bytes(function),
                     Read(Segment().Of(function, 0).network_timed_bytes));
  };
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (const char* function : {"AllReduce", "AllGather"}) {
      for (int i = 0; i < 3; ++i) caller.RunProxy(caller.Announce({.function = function}), true);
    }
    caller.Announce({.function = "Recv", .peer = 0});
    for (const char* function : {"AllReduce", "AllGather", "Recv"}) {
      const auto [all, timed] = bytes(function);
      EXPECT_GT(all, 0u);
      EXPECT_EQ(timed, all) << function;
    }
  });
  setenv("NCCL_EXPORTER_NETWORK_TIMING", "0.001/3600", 1);
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    for (int i = 0; i < 10; ++i) {
      if (caller.mask & kStepBit) return;  // one hour in a thousand
      caller.Announce();
    }
    const auto [all, timed] = bytes("AllReduce");
    EXPECT_GT(all, 0u);
    EXPECT_EQ(timed, 0u);
  });
}

TEST_F(NetworkSurvival, CountsStepsOfOperationsThatNobodyFollows) {
  InEach<5, 6>([&]<int kVersion>() {
    Caller<kVersion> caller;
    caller.Run({.function = "Recv", .channels = 4, .peer = 1});  // to itself: it drifts
    for (int i = 0; i < 10; ++i) caller.RunProxy(caller.Announce(), true);
    EXPECT_EQ(Segment().NetworkOperations(), 10u);
  });
}

TEST_F(NetworkSurvival, TakesNothingFromAnotherProcess) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    void* foreign = caller.Proxy(operation, getpid() + 1, true);
    EXPECT_EQ(foreign, nullptr);
    caller.RunStep(foreign, 0, true);
    // Its handle is of this process's kind by chance.
    void* own = caller.Proxy(operation);
    void* by_chance =
        reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(own) ^ uintptr_t{1} << 55);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(caller.Step(by_chance, 0), nullptr);
    caller.Stop(by_chance);
    const View view = Segment();
    EXPECT_EQ(view.NetworkOperations(), 0u);
    EXPECT_EQ(view.Lost(Loss::kForeignProcess), 1u);
    EXPECT_EQ(view.Lost(Loss::kUnknownHandle), 11u);
  });
}

TEST_F(NetworkSurvival, CountsNoStepTwiceAndNoneThatIsOver) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    void* proxy = caller.Proxy(operation);
    void* step = caller.Step(proxy, 0);
    ASSERT_NE(step, nullptr);
    caller.Stop(step);
    uint64_t bytes = 1000;
    for (int i = 0; i < 3; ++i) {
      caller.Stop(step);
      caller.Record(step, 9, &bytes);
    }
    caller.Stop(proxy);
    for (int i = 0; i < 3; ++i) {
      caller.Stop(proxy);
      EXPECT_EQ(caller.Step(proxy, 1), nullptr);
      caller.Stop(step);
    }
    const View view = Segment();
    EXPECT_EQ(view.NetworkOperations(), 1u);
    EXPECT_EQ(Read(view.Network(kSend).bytes), 0u);
    EXPECT_EQ(view.Lost(Loss::kStaleHandle), 15u);
  });
}

TEST_F(NetworkSurvival, CountsNoOperationWhoseStepsAreMissing) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* operation = caller.Announce();
    const auto play = [&](auto steps) {
      void* proxy = caller.Proxy(operation);
      steps(proxy);
      caller.Stop(proxy);
    };
    play([&](void* proxy) { caller.Step(proxy, 0); });               // no stop
    play([&](void* proxy) { caller.Stop(caller.Step(proxy, 1)); });  // no start
    play([&](void* proxy) {
      caller.Step(proxy, 0);
      caller.Stop(caller.Step(proxy, 1));
    });
    play([&](void* proxy) {
      for (int step = 0; step < 9; ++step) caller.Step(proxy, step);
    });
    play([&](void* proxy) { caller.Step(proxy, -1); });
    play([](void*) {});  // called while the bit of steps was off
    const View view = Segment();
    EXPECT_EQ(view.NetworkOperations(), 0u);
    EXPECT_EQ(view.Lost(Loss::kNetworkIncomplete), 1u);
    EXPECT_EQ(view.Lost(Loss::kNetworkStepMismatch), 4u);
  });
}

TEST_F(NetworkSurvival, GivesUpWhatIsUnderWayWhenItsCommunicatorIsFinalized) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller, other{{.id = 7}};
    void* proxy = caller.Proxy(caller.Announce());
    void* step = caller.Step(proxy, 0);
    caller.Finalize();
    EXPECT_EQ(Segment().Lost(Loss::kNetworkIncomplete), 1u);
    uint64_t bytes = 1000;
    caller.Record(step, 9, &bytes);
    caller.Stop(step);
    EXPECT_EQ(caller.Step(proxy, 1), nullptr);
    caller.Stop(proxy);
    EXPECT_EQ(Segment().Lost(Loss::kStaleHandle), 4u);
    EXPECT_EQ(Segment().NetworkOperations(), 0u);
    other.RunProxy(other.Announce(), false);
    EXPECT_EQ(Segment().NetworkOperations(1), 1u);
  });
}

TEST_F(NetworkSurvival, CountsInAForkedChildNothingOfItsParentAndAllOfItsOwn) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    void* const operation = caller.Announce();
    void* const proxy = caller.Proxy(operation);
    void* const step = caller.Step(proxy, 0);
    const std::string path = Segments()[0];
    uint64_t bytes = 1000;
    EXPECT_EQ(StatusOf([&] {
                caller.Record(step, 9, &bytes);
                EXPECT_EQ(caller.Step(proxy, 1), nullptr);
                caller.Stop(step);
                caller.Stop(proxy);
                EXPECT_EQ(caller.Proxy(operation), nullptr);
                Caller<kVersion> own({.id = 2, .mask = &caller.mask});
                EXPECT_TRUE(own.RunProxy(own.Announce(), true));
                EXPECT_EQ(caller.Step(proxy, 1), nullptr);
              }),
              0);
    const View view(path);
    EXPECT_EQ(view.NetworkOperations(), 0u);
    caller.Record(step, 9, &bytes);
    caller.Stop(step);
    caller.Stop(proxy);
    EXPECT_EQ(view.NetworkOperations(), 1u);
    ExpectNothingLost(view);
    for (const std::string& other : Segments()) {
      EXPECT_EQ(View(other).NetworkOperations(), 1u) << "each has its own";
    }
  });
}

// As in a process of several GPUs: another GPU's progress thread has the other half.
TEST_F(NetworkSurvival, KeepsApartWhatTwoProgressThreadsReport) {
  InEachWithSteps([&]<int kVersion>() {
    Caller<kVersion> caller;
    constexpr int kOperations = 300;
    void* operation = caller.Announce();
    caller.RunProxy(operation, true, 3);
    const auto run = [&](bool is_send) {
      for (int i = is_send ? 1 : 0; i < kOperations; ++i) caller.RunProxy(operation, is_send, 3);
    };
    std::thread sends(run, true), receives(run, false);
    sends.join();
    receives.join();
    const View view = Segment();
    ExpectNothingLost(view);
    EXPECT_EQ(Read(view.Network(kSend).operations), uint64_t{kOperations});
    EXPECT_EQ(Read(view.Network(kRecv).operations), uint64_t{kOperations});
    EXPECT_EQ(Read(view.Network(kSend).bytes), kOperations * 3 * Caller<kVersion>::kStepBytes);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
