// SPDX-License-Identifier: Apache-2.0
// Events that the real library requests from NCCL, and its messages about them, by NCCL's release
// and the job's environment; and its reaction if another program changes the event mask.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "plugin/survival/survival_fixture.h"

namespace {

std::atomic<int64_t> clock_ahead_s{0};

}  // namespace

// The plugin's clock: the kernel's, and what the test adds.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  time->tv_sec += clock_ahead_s;
  return static_cast<int>(result);
}

namespace nccl_exporter::plugin::survival {
namespace {

int event_mask = 0;  // NCCL's

using Environment = std::map<std::string, std::string>;

// One communicator whose mask lies where ncclGetVersion does.
template <int kVersion>
class Communicator {
 public:
  using Descriptor = typename Api<kVersion>::Descriptor;

  explicit Communicator(uint64_t id = 1, int* mask = &event_mask) {
    if constexpr (kVersion <= 3) {
      table_->init(&context_, mask);
    } else if constexpr (kVersion == 4) {
      table_->init(&context_, mask, nullptr, id, 1, 2, 0, nullptr);
    } else {
      table_->init(&context_, id, mask, nullptr, 1, 2, 0, nullptr);
    }
  }
  void Finalize() { table_->finalize(context_); }

  void* Start(uint64_t type, void* parent = nullptr, bool is_captured = false,
              const char* function = "AllReduce") {
    Descriptor event;
    std::memset(static_cast<void*>(&event), 0, sizeof(event));
    event.type = static_cast<decltype(event.type)>(type);
    event.parentObj = parent;
    if constexpr (kVersion >= 5) {
      if (type == abi::kGroupApi) event.groupApi = {is_captured, 1};
      if (type == abi::kCollApi)
        event.collApi = {function, 64, "ncclFloat32", 0, nullptr, is_captured};
      if (type == abi::kP2pApi) event.p2pApi = {function, 64, "ncclFloat32", nullptr, is_captured};
    }
    void* handle = nullptr;
    table_->startEvent(context_, &handle, &event);
    return handle;
  }
  void Stop(void* handle) {
    if (handle != nullptr) table_->stopEvent(handle);
  }
  // The operation of a call, announced.
  void* Announce(void* call, uint64_t sequence = 0) {
    Descriptor event;
    std::memset(static_cast<void*>(&event), 0, sizeof(event));
    event.type = static_cast<decltype(event.type)>(abi::kColl);
    event.parentObj = call;
    event.coll.func = "AllReduce";
    event.coll.count = 64;
    event.coll.datatype = "ncclFloat32";
    event.coll.nChannels = 1;
    event.coll.seqNumber = sequence;
    void* handle = nullptr;
    table_->startEvent(context_, &handle, &event);
    return handle;
  }
  // A group with one call.
  void Call(uint64_t type = abi::kCollApi, const char* function = "AllReduce",
            bool is_captured = false) {
    void* group = Start(abi::kGroupApi, nullptr, is_captured);
    Stop(Start(type, group, is_captured, function));
    Stop(group);
  }
  // A launch without operations.
  void Launch() { Stop(Start(abi::kGroup)); }

 private:
  const typename Api<kVersion>::Table* table_ = LoadTable<kVersion>();
  void* context_ = nullptr;
};

class EventMask : public SurvivalTest {
 protected:
  // `body` with a communicator of that release, in a process of its own.
  template <int kVersion, typename Body>
  void InJob(int version, const Environment& environment, Body body) const {
    SCOPED_TRACE("NCCL " + std::to_string(version));
    InChild([&] {
      unsetenv("NCCL_EXPORTER_KERNEL_TIMING");
      unsetenv("NCCL_ALLGATHERV_ENABLE");
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      nccl::Report(version);
      event_mask = 0;
      Communicator<kVersion> communicator;
      body(communicator);
    });
  }
  template <int kVersion>
  void ExpectAsked(int version, const Environment& environment, bool is_kernel_timed,
                   TimingReason reason) const {
    InJob<kVersion>(version, environment, [&](auto&) {
      EXPECT_EQ((event_mask & abi::kKernelCh) != 0, is_kernel_timed);
      EXPECT_EQ(Reason(), reason);
      EXPECT_EQ(Source(), is_kernel_timed ? TimingSource::kKernel : TimingSource::kProxy);
    });
  }
  TimingReason Reason(size_t slot = 0) const {
    return static_cast<TimingReason>(Segment().Slot(slot)->timing_reason);
  }
  TimingSource Source(size_t slot = 0) const {
    return static_cast<TimingSource>(Segment().Slot(slot)->timing_source);
  }
};

TEST_F(EventMask, LeavesKernelEventsOutWhereBroadcastsLackThem) {
  for (const char* kernel_timing : {"auto", "on"}) {
    const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", kernel_timing}};
    ExpectAsked<6>(22903, environment, false, TimingReason::kAllgathervEnabled);
    ExpectAsked<6>(23007, environment, false, TimingReason::kAllgathervEnabled);
    ExpectAsked<7>(23103, environment, false, TimingReason::kAllgathervEnabled);
    ExpectAsked<7>(23206, environment, false, TimingReason::kAllgathervEnabled);
  }
}

TEST_F(EventMask, AsksForKernelEventsWhereAllWorkCarriesThem) {
  const TimingReason on = TimingReason::kConfigured;
  ExpectAsked<4>(22707, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}}, true, on);
  ExpectAsked<5>(22809, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}}, true, on);
  for (const char* off : {"0", "00", "0x0", "no"}) {  // as strtoll reads them, and so NCCL
    const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                  {"NCCL_ALLGATHERV_ENABLE", off}};
    ExpectAsked<6>(23007, environment, true, on);
    ExpectAsked<7>(23206, environment, true, on);
  }
  for (const char* enabled : {"1", "-1", "", "99999999999999999999"}) {
    const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                  {"NCCL_ALLGATHERV_ENABLE", enabled}};
    ExpectAsked<6>(23007, environment, false, TimingReason::kAllgathervEnabled);
  }
}

TEST_F(EventMask, DoesNotTrustAVariableThatNcclMayReadElsewhere) {
  const Environment trusted{{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}};
  for (const auto& [name, value] :
       Environment{{"NCCL_ENV_PLUGIN", "libsite.so"}, {"NCCL_NO_CACHE", "ALL"}}) {
    Environment environment = trusted;
    environment[name] = value;
    ExpectAsked<6>(23007, environment, false, TimingReason::kAllgathervEnabled);
  }
  Environment environment = trusted;
  environment["NCCL_ENV_PLUGIN"] = "none";
  ExpectAsked<6>(23007, environment, true, TimingReason::kConfigured);
}

TEST_F(EventMask, IsTheSameAllTheTimeByDefault) {
  InJob<5>(22809, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}}, [&](Communicator<5>& communicator) {
    const int first = event_mask;
    for (int i = 0; i < 30; ++i) {
      communicator.Call();
      usleep(10'000);
      EXPECT_EQ(event_mask, first);
    }
  });
}

TEST_F(EventMask, LeavesKernelEventsOutWithFewerThanTwoCpusPerRank) {
  const Environment alone{{"LOCAL_WORLD_SIZE", "1"}};
  InChild([&] {
    cpu_set_t cpus, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &cpus)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    ExpectAsked<5>(22809, alone, false, TimingReason::kCpusLow);
    Environment forced = alone;
    forced["NCCL_EXPORTER_KERNEL_TIMING"] = "on";
    ExpectAsked<5>(22809, forced, true, TimingReason::kConfigured);
  });
}

// Lines at INFO and at WARN, in a fork whose levels begin one later.
TEST_F(EventMask, LogsAtTheLevelsOfAForkOfNccl) {
  InChild([&] {
    void* const fork_of_nccl = dlopen("plugin/survival/libsurvival-fork.so", RTLD_NOW);
    ASSERT_NE(fork_of_nccl, nullptr) << dlerror();
    const auto logger = reinterpret_cast<abi::Logger>(dlsym(fork_of_nccl, "survival_fork_log"));
    const auto* const lines =
        static_cast<std::atomic<int>*>(dlsym(fork_of_nccl, "survival_fork_lines"));
    setenv("NCCL_EXPORTER_COMMUNICATORS", "many", 1);  // a warning
    void* context = nullptr;
    LoadTable<6>()->init(&context, 1, &event_mask, nullptr, 1, 2, 0, logger);
    constexpr int kForksWarn = 3, kForksInfo = 4;
    for (int level = 0; level < 8; ++level)
      EXPECT_EQ(lines[level] > 0, level == kForksWarn || level == kForksInfo) << level;
  });
}

// One of two GPUs has NVLink SHARP.
void LoadDriverWithMulticast() {
  void* const driver = dlopen("plugin/survival/libsurvival-cuda.so", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  static_cast<std::atomic<int>*>(dlsym(driver, "survival_cuda_multicast_device"))->store(1);
}

TEST_F(EventMask, LeavesKernelEventsOutByDefaultWhereBuffersMayBeRegisteredForNvls) {
  InChild([&] {
    LoadDriverWithMulticast();
    const Environment safe{{"NCCL_ALLGATHERV_ENABLE", "0"}};
    ExpectAsked<5>(22809, safe, false, TimingReason::kRegistrationEnabled);
    ExpectAsked<6>(23007, safe, false, TimingReason::kRegistrationEnabled);
    Environment forced = safe;
    forced["NCCL_EXPORTER_KERNEL_TIMING"] = "on";
    ExpectAsked<5>(22809, forced, true, TimingReason::kConfigured);
  });
}

TEST_F(EventMask, LeavesKernelEventsOutWhereTheEnvironmentSharesResources) {
  for (const char* name : {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_COMM_SHRINK_SHARE_RESOURCES"}) {
    const Environment environment{
        {"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}, {name, "1"}};
    ExpectAsked<6>(23007, environment, false, TimingReason::kResourcesShared);
  }
}

const Environment kTimedV7{{"NCCL_EXPORTER_KERNEL_TIMING", "on"}, {"NCCL_ALLGATHERV_ENABLE", "0"}};

TEST_F(EventMask, SeesAtTheNextLaunchThatSomebodyElseHasChangedIt) {
  for (const int override : {0xffff, static_cast<int>(abi::kColl | abi::kP2p)}) {
    InJob<7>(23206, kTimedV7, [&](Communicator<7>& communicator) {
      communicator.Launch();
      EXPECT_EQ(Reason(), TimingReason::kConfigured);
      event_mask = override;
      communicator.Launch();
      EXPECT_EQ(Reason(), TimingReason::kMaskOverride);
      EXPECT_EQ(Source(), TimingSource::kNone);
      EXPECT_EQ(event_mask, override) << "the plugin does not fight for it";
    });
  }
}

TEST_F(EventMask, SeesThatEventsWereOffForAWhile) {
  InJob<7>(23206, kTimedV7, [&](Communicator<7>& communicator) {
    communicator.Announce(nullptr, 0);
    communicator.Announce(nullptr, 1);
    EXPECT_EQ(Source(), TimingSource::kKernel);
    communicator.Announce(nullptr, 5);
    EXPECT_EQ(Source(), TimingSource::kNone);
    EXPECT_EQ(Reason(), TimingReason::kDrift);
  });
}

// The mask's word lies on a page that cannot be read at first, so that one thread is held up where
// it reads the word while another one comes to see the change.
int* unreadable_mask = nullptr;
std::atomic<int> readers_held_up{0};
std::atomic<bool> other_has_seen_it{false};

void HoldUp(int, siginfo_t* fault, void*) {
  if (fault->si_addr != unreadable_mask) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  mprotect(unreadable_mask, 4096, PROT_READ | PROT_WRITE);
  readers_held_up = 1;
  while (!other_has_seen_it) sched_yield();
}

TEST_F(EventMask, SurvivesThatTwoThreadsSeeTheChangeAtOnce) {
  InJob<7>(23206, kTimedV7, [&](Communicator<7>&) {
    unreadable_mask = static_cast<int*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Communicator<7> one(21, unreadable_mask), other(22, unreadable_mask);
    *unreadable_mask = abi::kColl;
    struct sigaction action {};
    action.sa_sigaction = HoldUp;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    std::thread thread([&] {
      while (readers_held_up == 0) sched_yield();
      other.Launch();
      other_has_seen_it = true;
    });
    mprotect(unreadable_mask, 4096, PROT_NONE);
    one.Launch();
    thread.join();
    EXPECT_EQ(Source(0), TimingSource::kKernel) << "of another copy of NCCL";
    for (const size_t slot : {1, 2}) EXPECT_EQ(Reason(slot), TimingReason::kMaskOverride) << slot;
  });
}

TEST_F(EventMask, SeesAtTheNextInitThatSomebodyElseHasChangedIt) {
  InJob<7>(23206, kTimedV7, [&](Communicator<7>&) {
    event_mask = abi::kColl;
    Communicator<7> second(2);
    for (const size_t slot : {0, 1}) {
      EXPECT_EQ(Reason(slot), TimingReason::kMaskOverride);
      EXPECT_EQ(Source(slot), TimingSource::kNone);
    }
    EXPECT_EQ(event_mask, abi::kColl);
  });
}

TEST_F(EventMask, ForgetsTheMaskOfACopyOfNcclWithItsLastCommunicator) {
  const Environment environment{{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                {"NCCL_EXPORTER_COMMUNICATORS", "2"}};
  InJob<5>(22809, environment, [&](Communicator<5>&) {
    void* data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Communicator<5> of_other_copy(2, static_cast<int*>(data));
    of_other_copy.Call();
    of_other_copy.Finalize();
    ASSERT_EQ(munmap(data, 4096), 0);  // as if unloaded
    Communicator<5> beyond(3);         // has no slot of its own
    beyond.Call();
  });
}

TEST_F(EventMask, DatesCallsRightAfterHundredsOfDays) {
  InJob<5>(22809, {{"NCCL_EXPORTER_KERNEL_TIMING", "on"}}, [&](Communicator<5>& communicator) {
    constexpr int64_t kDay = 86'400;
    for (const int64_t day : {0, 100, 208, 209, 312, 417, 3650}) {
      clock_ahead_s = day * kDay;
      const uint64_t before_ns = NowNs() - 1024;
      void* group = communicator.Start(abi::kGroupApi);
      void* call = communicator.Start(abi::kCollApi, group);
      clock_ahead_s += 10 * kDay;
      EXPECT_NE(communicator.Announce(call), nullptr);
      communicator.Stop(group);
      const View segment = Segment();
      uint64_t youngest_ns = 0;
      for (const layout::InFlightEntry& entry : segment.Slot(0)->in_flight) {
        youngest_ns = std::max(youngest_ns, Read(entry.start_ns));
      }
      EXPECT_GE(youngest_ns, before_ns) << day;
      EXPECT_LE(youngest_ns, NowNs()) << day;
      EXPECT_LT(youngest_ns, NowNs() - 9 * kDay * 1'000'000'000)
          << day << ": the call's time, not the announcement's";
    }
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
