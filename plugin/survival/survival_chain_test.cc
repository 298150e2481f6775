// SPDX-License-Identifier: Apache-2.0
// Failures of a chained plugin that this plugin survives, what it does about a slow one, and what a
// process without one has.
#include <sys/syscall.h>
#include <time.h>

#include <array>
#include <cstdarg>

#include "plugin/survival/survival_chained.h"
#include "plugin/survival/survival_fixture.h"

namespace {

std::atomic<uint64_t> ahead_ns{0};

}  // namespace

// The clock of the libraries, which the chained plugin advances.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  const uint64_t ns = ahead_ns + static_cast<uint64_t>(now->tv_nsec);
  now->tv_sec += static_cast<time_t>(ns / 1'000'000'000);
  now->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return static_cast<int>(result);
}
extern "C" __attribute__((visibility("default"))) void survival_advance_clock(uint64_t ns) {
  ahead_ns += ns;
}

namespace nccl_exporter::plugin::survival {
namespace {

constexpr char kChained[] = "plugin/survival/libsurvival-chained.so";

std::string log;

void Log(int, unsigned long, const char*, int, const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  log.append(line).append("\n");
}

bool HasLogged(const char* text) { return log.find(text) != std::string::npos; }

Chained& TheChained() {
  return *static_cast<Chained*>(dlsym(dlopen(kChained, RTLD_NOW | RTLD_LOCAL), "survival_chained"));
}

class ChainSurvival : public SurvivalTest {
 protected:
  void SetUp() override {
    SurvivalTest::SetUp();
    setenv("NCCL_EXPORTER_CHAIN", kChained, 1);
  }
  void TearDown() override {
    unsetenv("NCCL_EXPORTER_CHAIN");
    SurvivalTest::TearDown();
  }
  template <typename Body>
  void InEachChained(Body body) const {
    InEach<4, 5, 6, 7>(body);
  }
  const layout::ChainBlock& Block() const { return Segment().header()->chain; }
};

TEST_F(ChainSurvival, PassesEverythingOnThatIsAnnounced) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> caller({.logger = Log});
    for (int i = 0; i < 100; ++i) caller.Run();
    caller.Finalize();
    EXPECT_EQ(chained.starts, (kVersion == 4 ? 4u : 6u) * 100) << "launch, task, 2 channels, calls";
    EXPECT_EQ(chained.stops, chained.starts);
    EXPECT_EQ(chained.records, (kVersion == 4 ? 2u : 4u) * 100);
    EXPECT_EQ(chained.inits, 1u);
    EXPECT_EQ(chained.finalizes, 1u);
    EXPECT_EQ(chained.wrong, 0u);
    EXPECT_EQ(Read(Block().flags), layout::kChainOpen);
    EXPECT_STREQ(Block().name, "difficult");
    EXPECT_TRUE(HasLogged("chained plugin difficult, profiler API v"));
    ExpectAllTimed(Segment(), 100);
  });
}

TEST_F(ChainSurvival, GivesNoEventsToAPluginWhoseInitFails) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    chained.init_result = 3;
    Caller<kVersion> caller({.logger = Log});
    EXPECT_EQ(caller.result, 0);
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(chained.inits, 1u);
    EXPECT_EQ(chained.starts + chained.stops + chained.records + chained.finalizes, 0u);
    EXPECT_TRUE(HasLogged("init of the chained plugin difficult returned 3"));
    ExpectAllTimed(Segment(), 1);
  });
}

TEST_F(ChainSurvival, SurvivesErrorsOfAllCallbacks) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    chained.result = 3;
    Caller<kVersion> caller;
    caller.Run();
    caller.Finalize();
    EXPECT_EQ(chained.stops, chained.starts);
    EXPECT_EQ(chained.wrong, 0u);
    ExpectAllTimed(Segment(), 1);
  });
}

TEST_F(ChainSurvival, StopsNoEventWithoutAHandle) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    chained.has_handles = false;
    Caller<kVersion> caller;
    caller.Run();
    EXPECT_GT(chained.starts, 0u);
    EXPECT_EQ(chained.stops + chained.records, 0u);
    ExpectAllTimed(Segment(), 1);
  });
}

TEST_F(ChainSurvival, PassesEventsOnWithoutAContext) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    chained.has_context = false;
    Caller<kVersion> caller;
    caller.Run();
    caller.Finalize();
    EXPECT_GT(chained.starts, 0u);
    EXPECT_EQ(chained.finalizes, kVersion == 4 ? 1u : 0u) << "as NCCL 2.28 and later";
    EXPECT_EQ(chained.wrong, 0u);
  });
}

TEST_F(ChainSurvival, PassesNothingOnOfAFinalizedCommunicator) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> caller;
    caller.Finalize();
    caller.Finalize();
    EXPECT_EQ(caller.Group(), nullptr);
    EXPECT_EQ(chained.finalizes, 1u);
    EXPECT_EQ(chained.starts, 0u);
  });
}

TEST_F(ChainSurvival, StopsPassingStartsOnToASlowPlugin) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> caller({.logger = Log});
    void* const begun = caller.Group();
    chained.callback_ns = 10'000'000;
    for (int i = 0; i < 2000 && Read(Block().flags) == layout::kChainOpen; ++i) caller.Run();
    EXPECT_EQ(Read(Block().flags), layout::kChainOpen | layout::kChainOverBudget);
    EXPECT_FALSE(HasLogged("took more than")) << "callbacks do not log";
    const uint64_t starts = chained.starts, stops = chained.stops;
    for (int i = 0; i < 100; ++i) caller.Run();
    EXPECT_EQ(chained.starts, starts);
    caller.Stop(begun);
    EXPECT_GT(chained.stops, stops) << "what it has begun ends";
    // Every 64th is timed.
    const double callbacks = static_cast<double>(Read(Block().callbacks));
    EXPECT_NEAR(static_cast<double>(Read(Block().ns)) / callbacks, 1e7, 1e6);
    EXPECT_NEAR(callbacks, static_cast<double>(chained.starts + chained.stops + chained.records),
                callbacks / 2);
    caller.Finalize();
    EXPECT_TRUE(HasLogged("the callbacks of the chained plugin difficult took more than"));
    EXPECT_EQ(chained.finalizes, 1u);
  });
}

TEST_F(ChainSurvival, ForgivesOneSlowCallback) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> caller;
    chained.callback_ns = 200'000'000;  // for as long as the first that is timed
    while (Read(Block().callbacks) == 0) caller.Run();
    chained.callback_ns = 1'000;
    survival_advance_clock(20'000'000'000);
    for (int i = 0; i < 1000; ++i) caller.Run();
    EXPECT_EQ(Read(Block().flags), layout::kChainOpen);
  });
}

TEST_F(ChainSurvival, SurvivesAFork) {
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> caller;
    void* const operation = caller.Announce();
    const uint64_t starts = chained.starts;
    EXPECT_EQ(StatusOf([&] {
                caller.Complete(operation);
                caller.Finalize();
                EXPECT_EQ(chained.starts, starts) << "nothing of the parent's is known here";
                Caller<kVersion> own({.id = 2});
                own.Run();
                EXPECT_EQ(chained.inits, 2u);
                EXPECT_GT(chained.starts, starts);
                own.Finalize();
                EXPECT_EQ(chained.finalizes, 1u);
                EXPECT_EQ(chained.wrong, 0u);
              }),
              0);
    caller.Complete(operation);
    caller.Finalize();
    EXPECT_GT(chained.starts, starts);
    EXPECT_EQ(chained.stops, chained.starts);
    EXPECT_EQ(chained.wrong, 0u);
  });
}

TEST_F(ChainSurvival, CallsThePluginWhereThisOneIsOff) {
  setenv("NCCL_EXPORTER_ENABLE", "0", 1);
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> caller;
    caller.Run();
    caller.Finalize();
    EXPECT_GT(chained.starts, 0u);
    EXPECT_EQ(chained.stops, chained.starts);
    EXPECT_EQ(chained.finalizes, 1u);
    EXPECT_TRUE(Segments().empty());
  });
}

TEST_F(ChainSurvival, SaysWhyAPluginIsNotInForce) {
  const std::pair<const char*, const char*> reasons[]{
      {"no-such-plugin", "libnccl-profiler-no-such-plugin.so"},
      {"plugin/survival/libsurvival-cuda.so", "it has no ncclProfiler_v4 or later"},
      {kLibrary, "it is this very plugin"}};
  for (const auto& [name, reason] : reasons) {
    setenv("NCCL_EXPORTER_CHAIN", name, 1);
    InEachChained([&, reason = reason]<int kVersion>() {
      Caller<kVersion> caller({.logger = Log});
      caller.Run();
      EXPECT_TRUE(HasLogged("is not in force: ") && HasLogged(reason)) << name << ": " << log;
      EXPECT_EQ(Read(Block().flags), 0u);
      ExpectAllTimed(Segment(), 1);
    });
  }
}

// Places of the callbacks within the library.
template <int kVersion>
std::array<uintptr_t, 5> Callbacks() {
  const auto* const table = LoadTable<kVersion>();
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(table->init), &info);
  const auto place = [&](auto function) {
    return reinterpret_cast<uintptr_t>(function) - reinterpret_cast<uintptr_t>(info.dli_fbase);
  };
  return {place(table->init), place(table->startEvent), place(table->stopEvent),
          place(table->recordEventState), place(table->finalize)};
}

TEST_F(ChainSurvival, ChangesNoCallbackWithoutAChain) {
  InEachChained([&]<int kVersion>() {
    const auto in_child = [&](const char* value) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      StatusOf([&] {
        value != nullptr ? setenv("NCCL_EXPORTER_CHAIN", value, 1)
                         : unsetenv("NCCL_EXPORTER_CHAIN");
        const auto callbacks = Callbacks<kVersion>();
        EXPECT_EQ(write(ends[1], &callbacks, sizeof(callbacks)), ssize_t{sizeof(callbacks)});
      });
      decltype(Callbacks<kVersion>()) callbacks{};
      EXPECT_EQ(read(ends[0], &callbacks, sizeof(callbacks)), ssize_t{sizeof(callbacks)});
      return callbacks;
    };
    const auto alone = in_child(nullptr), with_none = in_child("none"), with_empty = in_child("");
    const auto chained = in_child(kChained);
    EXPECT_EQ(alone, with_none);
    EXPECT_EQ(alone, with_empty);
    EXPECT_EQ(alone[0], chained[0]) << "init";
    for (size_t i = 1; i < alone.size(); ++i) EXPECT_NE(alone[i], chained[i]) << i;
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
