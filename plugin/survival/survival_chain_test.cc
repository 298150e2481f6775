// SPDX-License-Identifier: Apache-2.0
// Failures of a chained plugin that this plugin survives, what it does about a slow one, and what a
// process without one has.
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
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

size_t LinesWith(const char* text) {
  size_t lines = 0;
  for (size_t at = log.find(text); at != log.npos; at = log.find(text, log.find('\n', at))) ++lines;
  return lines;
}

// The plugin that has one version of the API; that of v7 has v4 to v6 as well.
std::string ChainedOf(int version) {
  return version == 7 ? kChained
                      : "plugin/survival/libsurvival-chained-v" + std::to_string(version) + ".so";
}

Chained& TheChained(const std::string& path = kChained) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return *static_cast<Chained*>(dlsym(library, "survival_chained"));
}

// Some bytes at the end of a page, behind which nothing can be read.
template <typename Descriptor>
Descriptor* MakeAtEndOfPage() {
  const auto page = static_cast<size_t>(getpagesize());
  void* const pages = mmap(nullptr, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(pages, page, PROT_READ | PROT_WRITE);
  return reinterpret_cast<Descriptor*>(static_cast<char*>(pages) + page) - 1;
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

TEST_F(ChainSurvival, OpensThePluginOnceForItselfAndNeverClosesIt) {
  InEachChained([&]<int kVersion>() {
    const auto find = [] { return dlopen(kChained, RTLD_NOW | RTLD_NOLOAD); };
    EXPECT_EQ(find(), nullptr);
    for (uint64_t id = 1; id <= 3; ++id) {
      Caller<kVersion> caller({.id = id});
      caller.Run();
      caller.Finalize();
    }
    EXPECT_EQ(dlsym(RTLD_DEFAULT, "survival_chained"), nullptr);
    void* const library = find();
    ASSERT_NE(library, nullptr) << "closed";
    dlclose(library);
    ASSERT_NE(find(), nullptr);
    dlclose(library);
    dlclose(library);
    EXPECT_EQ(find(), nullptr) << "opened more than once";
  });
}

TEST_F(ChainSurvival, RefusesKernelEventsThatThePolicyRefuses) {
  setenv("NCCL_EXPORTER_KERNEL_TIMING", "off", 1);
  InEachChained([&]<int kVersion>() {
    Chained& chained = TheChained();
    Caller<kVersion> first({.id = 1, .logger = Log}), second({.id = 2, .logger = Log});
    EXPECT_EQ(first.mask & static_cast<int>(abi::kKernelCh | abi::kKernelPhase), 0);
    first.Run();
    EXPECT_EQ(chained.starts, kVersion == 4 ? 2u : 4u) << "launch, task, calls";
    EXPECT_EQ(Read(Block().flags), layout::kChainOpen | layout::kChainWithoutKernelEvents);
    EXPECT_EQ(LinesWith("difficult gets no kernel events: timing_reason configured"), 1u);
  });
}

TEST_F(ChainSurvival, WithholdsEventsThatAPluginsVersionDoesNotKnow) {
  constexpr uint64_t kFirstUnknown[]{abi::kGroupApi, abi::kCeColl, abi::kKernelPhase,
                                     2 * abi::kKernelPhase};
  for (const int version : {4, 5, 6, 7}) {
    const std::string path = ChainedOf(version);
    setenv("NCCL_EXPORTER_CHAIN", path.c_str(), 1);
    InEachChained([&]<int kVersion>() {
      if (version > kVersion) return;
      Chained& chained = TheChained(path);
      chained.mask = -1;  // events of forks, too
      Caller<kVersion> caller;
      void* const parent = caller.Group();
      const uint64_t unknown = kFirstUnknown[std::min(version, kVersion) - 4];
      const uint64_t bits = kVersion == 4 ? 8 : 40;  // of a type
      for (uint64_t bit = 0; bit < bits; ++bit) {
        const uint64_t type = uint64_t{1} << bit, before = chained.starts;
        caller.Stop(caller.Start(caller.Event(type, parent)));
        EXPECT_EQ(chained.starts - before, type < unknown ? 1u : 0u) << version << ": " << type;
      }
      chained.mask = ~static_cast<int>(unknown - 1);
      Caller<kVersion> other({.id = 2});
      const uint64_t before = chained.starts;
      other.Run();
      EXPECT_EQ(chained.starts, before) << "a mask of unknown events alone";
    });
  }
}

// RCCL has more fields behind those of NVIDIA's.
TEST_F(ChainSurvival, PassesTheDescriptorItselfAndReadsNothingBehindIt) {
  for (const int version : {4, 7}) {
    const std::string path = ChainedOf(version);
    setenv("NCCL_EXPORTER_CHAIN", path.c_str(), 1);
    InEachChained([&]<int kVersion>() {
      Chained& chained = TheChained(path);
      Caller<kVersion> caller;
      using Descriptor = typename Caller<kVersion>::Descriptor;
      struct Longer {
        Descriptor descriptor;
        std::array<uint8_t, 64> behind;
      };
      const auto start = [&](Descriptor* descriptor, uint64_t type, void* parent) {
        *descriptor = caller.Event(type, parent);
        if (type == abi::kProxyOp) {
          std::memset(&descriptor->proxyOp, 0xa5, sizeof(descriptor->coll));
          descriptor->proxyOp.pid = getpid();
        }
        void* handle = nullptr;
        chained.descriptor = nullptr;
        caller.table->startEvent(caller.context, &handle, descriptor);
        const bool is_copied = kVersion > version;
        EXPECT_EQ(chained.descriptor == descriptor, !is_copied) << type;
        EXPECT_EQ(descriptor->parentObj, parent) << type;
        caller.Stop(handle);
      };
      Descriptor* const short_one = MakeAtEndOfPage<Descriptor>();
      Longer* const long_one = MakeAtEndOfPage<Longer>();
      long_one->behind.fill(0xa5);
      void* const parent = caller.Group();
      for (uint64_t type = 1; type <= (kVersion == 4 ? abi::kNetPlugin : abi::kKernelLaunch);
           type *= 2) {
        start(short_one, type, parent);
        start(&long_one->descriptor, type, parent);
        for (const uint8_t byte : long_one->behind) EXPECT_EQ(byte, 0xa5) << type;
      }
      EXPECT_EQ(chained.wrong, 0u);
    });
  }
}

TEST_F(ChainSurvival, RefusesAPluginOfFormerVersionsInOneLine) {
  for (const int version : {1, 2, 3}) {
    const std::string path = ChainedOf(version);
    setenv("NCCL_EXPORTER_CHAIN", path.c_str(), 1);
    InEachChained([&]<int kVersion>() {
      Caller<kVersion> first({.id = 1, .logger = Log}), second({.id = 2, .logger = Log});
      first.Run();
      EXPECT_EQ(LinesWith("chain"), 1u) << log;  // it is in the path
      EXPECT_EQ(LinesWith("is not in force: it has no ncclProfiler_v4 or later"), 1u) << log;
      EXPECT_EQ(TheChained(path).inits, 0u);
      ExpectAllTimed(Segment(), 1);
    });
  }
}

TEST_F(ChainSurvival, SaysWhyAPluginIsNotInForce) {
  const std::pair<const char*, const char*> reasons[]{
      {"no-such-plugin", "no-such-plugin: cannot open"},
      {"no-such-plugin", "; libnccl-profiler-no-such-plugin.so: cannot open"},
      {"libno-such-plugin.so", "force: libno-such-plugin.so: cannot open"},
      {"plugin/survival/libsurvival-cuda.so", "it has no ncclProfiler_v4 or later"},
      {kLibrary, "it is this very plugin"}};
  for (const auto& [name, reason] : reasons) {
    setenv("NCCL_EXPORTER_CHAIN", name, 1);
    InEachChained([&, name = name, reason = reason]<int kVersion>() {
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
