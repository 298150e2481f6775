// SPDX-License-Identifier: Apache-2.0
// Tests that no hot callback allocates, locks or enters the kernel, and how often the clock is
// read. The allocator, the locks and the clock of this program are found before libc's and count; a
// filter in the kernel kills at any system call.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <thread>

#include "plugin/survival/survival_fixture.h"

namespace {

struct Count {
  std::atomic<bool> is_on{false};
  std::atomic<uint64_t> allocations{0};
  std::atomic<uint64_t> locks{0};
  std::atomic<uint64_t> clock_readings{0};

  void Allocation() {
    if (is_on.load(std::memory_order_relaxed)) allocations.fetch_add(1);
  }
  void Lock() {
    if (is_on.load(std::memory_order_relaxed)) locks.fetch_add(1);
  }
  void ClockReading() {
    if (is_on.load(std::memory_order_relaxed)) clock_readings.fetch_add(1);
  }
};
constinit Count count;

}  // namespace

#if !defined(NCCL_EXPORTER_ASAN) && !defined(NCCL_EXPORTER_TSAN)
// The library finds these before libc's. Its operator new is its own, and comes down to malloc.
extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t number, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

void* malloc(size_t bytes) { return count.Allocation(), __libc_malloc(bytes); }
void* calloc(size_t number, size_t bytes) {
  return count.Allocation(), __libc_calloc(number, bytes);
}
void* realloc(void* memory, size_t bytes) {
  return count.Allocation(), __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return count.Allocation(), __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return count.Allocation(), __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  count.Allocation();
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
void free(void* memory) { count.Allocation(), __libc_free(memory); }
void* mmap(void* address, size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  count.Allocation();
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
int pthread_mutex_lock(pthread_mutex_t* lock) noexcept {
  using Call = int (*)(pthread_mutex_t*);
  static const Call original = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  count.Lock();
  return original(lock);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  using Call = int (*)(clockid_t, timespec*);
  static const Call original = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "clock_gettime"));
  count.ClockReading();
  return original(clock, now);
}

}  // extern "C"
#endif

namespace nccl_exporter::plugin::survival {
namespace {

// Communicators of several kinds, made before the watch begins.
struct Stage {
  Caller<1> first{{.id = 1}};   // timed by proxies
  Caller<3> third{{.id = 3}};   // by the CPU at delivery
  Caller<4> fourth{{.id = 4}};  // by the GPU
  Caller<6> sixth{{.id = 6}};   // with calls
  Caller<6> gone{{.id = 8}};    // finalized
  Caller<7> shared{{.id = 7}};  // in the overflow slot
  void* captured = Capture();   // a call on `sixth`, by a thread that is over
  Stage() { gone.Finalize(); }

 private:
  void* Capture() {
    void* call = nullptr;
    std::thread caller([&] {
      void* group_api = sixth.GroupApi(true);
      call = sixth.Call(group_api, {}, true);
      sixth.Stop(call);
      sixth.Stop(group_api);
    });
    caller.join();
    return call;
  }
};

template <int kVersion>
void PlayOperations(Caller<kVersion>& caller) {
  for (int i = 0; i < 100; ++i) {
    caller.Run();
    caller.Run({.function = "Send", .channels = 4, .peer = 3});
    caller.Run({.function = "Recv", .channels = 4, .peer = 2});
    caller.Complete(caller.Announce({.channels = 16}), 13);  // fewer channels than announced
    caller.Complete(caller.Announce({.channels = 0}), 5);
    void* group = caller.Group();
    void* operations[8];
    for (void*& operation : operations)
      operation = caller.Operation({.function = "AllGather"}, nullptr, group);
    caller.Stop(group);
    for (void* operation : operations) caller.Complete(operation);
  }
}

// Both directions, and steps that are repeated, missing or over.
template <int kVersion>
void PlayNetwork(Caller<kVersion>& caller) {
  for (int i = 0; i < 20; ++i) {
    void* operation = caller.Announce();
    caller.RunProxy(operation, true);
    caller.RunProxy(operation, false);
    void* proxy = caller.Proxy(operation);
    void* step = caller.Step(proxy, 0);
    for (int poll = 0; poll < 100; ++poll) caller.Step(proxy, 0);
    for (int state = 0; state < 32; ++state) caller.Record(step, state);
    caller.Stop(step);
    caller.Stop(step);
    caller.Step(proxy, 5);
    caller.Stop(proxy);
    caller.Step(proxy, 1);
    caller.Stop(proxy);
    caller.Step(kOldContent, 0);
    caller.Step(nullptr, 0);
  }
  // More of them at a time than there are places.
  void* operation = caller.Announce();
  for (int i = 0; i < 1000; ++i) caller.Step(caller.Proxy(operation), 0);
  void* refused = caller.Proxy(operation);
  caller.Step(refused, 0);
  caller.Stop(refused);
}

template <int kVersion>
void PlayCapture(Caller<kVersion>& caller) {
  void* group_api = caller.GroupApi(true);
  void* call = caller.Call(group_api, {}, true);
  caller.Launch({}, call);
  caller.Stop(call);
  caller.Stop(group_api);
}

template <int kVersion>
void PlayReplays(Caller<kVersion>& caller, void* captured_call) {
  for (int i = 0; i < 100; ++i) caller.Complete(caller.Launch({}, captured_call));
}

template <int kVersion>
void PlayOddities(Caller<kVersion>& caller, void* finalized_context) {
  void* old = caller.Announce();
  caller.Complete(old);
  for (int i = 0; i < 100; ++i) {
    caller.Complete(old);      // over
    caller.Stop(kOldContent);  // no handle at all
    caller.Stamp(kOldContent, GpuNow());
    caller.Kernel(old, 64, GpuNow());  // no such channel
    caller.Proxy(old, 1);              // another process's
    caller.StartIn(finalized_context, caller.Event(abi::kGroup));
    caller.StartIn(kOldContent, caller.Coll({}, nullptr, nullptr));
    caller.StartIn(nullptr, caller.P2p({.peer = 2}, old, old));
    caller.StopKernel(caller.Kernel(caller.Announce(), 0, 0), 0);  // times of zero
    for (uint64_t type = 1; type < 1 << 17; type <<= 1)
      caller.Stop(caller.Start(caller.Event(type, old)));
    for (int state = 0; state < 32; ++state) caller.Record(old, state);
    caller.Stop(nullptr);
  }
}

// More operations than any ring holds: begun and never seen again, then many that are over.
template <int kVersion>
void PlayOverrun(Caller<kVersion>& caller) {
  for (int i = 0; i < 2 * layout::kInFlightEntries; ++i)
    caller.Kernel(caller.Announce(), 0, GpuNow());
  for (int i = 0; i < 2 * layout::kInFlightEntries; ++i) caller.Group();
  for (int i = 0; i < 4 * layout::kInFlightEntries; ++i) caller.Run();
}

// Last, for up to 2.30 it parts NCCL's counters from the device's, and nothing is timed from then
// on.
template <int kVersion>
void PlayMessagesToSelf(Caller<kVersion>& caller) {
  for (int i = 0; i < 100; ++i) caller.Run({.function = "Recv", .channels = 4, .peer = 1});
}

void PlayHotPath(Stage& stage) {
  const auto play = [&](auto& caller) {
    PlayOperations(caller);
    PlayNetwork(caller);
    PlayCapture(caller);
    PlayReplays(caller, stage.captured);
    PlayOddities(caller, stage.gone.context);
    PlayOverrun(caller);
    PlayMessagesToSelf(caller);
  };
  play(stage.first);
  play(stage.third);
  play(stage.fourth);
  play(stage.sixth);
  play(stage.shared);
  play(stage.gone);
}

// Report of a child before it ends, in memory that outlives it.
struct Told {
  std::atomic<uint64_t> is_over{0};
};

Told* SharedMemory() {
  void* memory =
      mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Told;
}

// From here on the kernel kills this process at any system call but exit_group and, where given,
// `allowed`.
bool ForbidSystemCalls(uint32_t allowed = SYS_exit_group) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof(program) / sizeof(program[0]), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

class HotPath : public SurvivalTest {
 protected:
  void SetUp() override {
    if (kHasAddressSanitizer || kHasThreadSanitizer)
      GTEST_SKIP() << "they allocate and enter the kernel themselves";
    SurvivalTest::SetUp();
    setenv("NCCL_EXPORTER_COMMUNICATORS", "5", 1);  // the sixth shares the overflow slot
  }
  void TearDown() override {
    if (!directory_.empty()) SurvivalTest::TearDown();
  }
  static bool WasKilledByFilter(int status) {
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
  }
  // clock_gettime, where this machine's clock cannot be read without the kernel; else what is
  // allowed anyway.
  static uint32_t ClockCall() {
    const int status = StatusOf([] {
      NowNs();
      if (ForbidSystemCalls()) NowNs();
      syscall(SYS_exit_group, 0);
    });
    if (!WasKilledByFilter(status)) return SYS_exit_group;
    std::printf("this machine reads its clock by a system call: clock_gettime is allowed\n");
    return SYS_clock_gettime;
  }
};

// The slots that the stage's communicators came to lie in were used as their kinds say.
void ExpectEveryKindPlayed(const View& view) {
  EXPECT_GT(view.Timed("AllReduce", 1), 100u) << "third";
  EXPECT_GT(view.Timed("AllReduce", 2), 100u) << "fourth";
  EXPECT_GT(view.Timed("AllReduce", 3), 100u) << "sixth";
  EXPECT_GT(view.Started("AllReduce", 0), 100u) << "first";
  EXPECT_GT(view.Started("AllReduce", 5), 100u) << "overflow";
  for (size_t slot = 1; slot < 4; ++slot) EXPECT_GT(view.NetworkOperations(slot), 20u) << slot;
  for (const Loss cause :
       {Loss::kInFlightFull, Loss::kOperationAbandoned, Loss::kUnknownContext, Loss::kUnknownHandle,
        Loss::kForeignProcess, Loss::kAfterCompletion, Loss::kChannelOutOfRange,
        Loss::kChannelsMissing, Loss::kZeroTimestamp, Loss::kCommunicatorDrifting,
        Loss::kStaleHandle, Loss::kNetworkFull, Loss::kNetworkStepMismatch}) {
    EXPECT_GT(view.Lost(cause), 0u) << TraitsOf(cause).reason;
  }
}

TEST_F(HotPath, AllocatesNothingAndTakesNoLock) {
  InChild([&] {
    count.is_on.store(true);
    Stage stage;
    EXPECT_GT(count.allocations.exchange(0), 0u) << "or what init maps would not be seen";
    EXPECT_GT(count.locks.exchange(0), 0u) << "or init's lock would not be seen";
    PlayHotPath(stage);
    count.is_on.store(false);
    EXPECT_EQ(count.allocations.load(), 0u);
    EXPECT_EQ(count.locks.load(), 0u);
    ExpectEveryKindPlayed(Segment());
  });
}

// The budget of the user's thread has room for one reading: the call's, which dates its group and
// its operation as well.
TEST_F(HotPath, ReadsTheClockOnceForACallAndOnceForItsCompletion) {
  InChild([&] {
    Caller<6> caller{{.id = 1}};
    caller.Run();
    uint64_t for_calls = 0;
    uint64_t for_completions = 0;
    count.is_on.store(true);
    for (int i = 0; i < 100; ++i) {
      void* operation = caller.Announce();
      for_calls += count.clock_readings.exchange(0);
      caller.Complete(operation);
      for_completions += count.clock_readings.exchange(0);
    }
    count.is_on.store(false);
    EXPECT_EQ(for_calls, 100u);
    EXPECT_EQ(for_completions, 3 * 100u) << "two each are the caller's own";
  });
}

TEST_F(HotPath, MakesNoSystemCall) {
  const uint32_t clock_call = ClockCall();
  Told* told = SharedMemory();
  const int status = StatusOf([&] {
    Stage stage;
    if (!ForbidSystemCalls(clock_call)) syscall(SYS_exit_group, 99);
    PlayHotPath(stage);
    told->is_over.store(1);
    syscall(SYS_exit_group, 0);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
    GTEST_SKIP() << "no permission to install a filter";
  EXPECT_FALSE(WasKilledByFilter(status)) << "a callback entered the kernel";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(told->is_over.load(), 1u);
  ExpectEveryKindPlayed(Segment());
}

TEST_F(HotPath, WouldBeKilledIfItMadeOne) {
  const int status = StatusOf([] {
    if (!ForbidSystemCalls()) syscall(SYS_exit_group, 99);
    syscall(SYS_getppid);
    syscall(SYS_exit_group, 0);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
    GTEST_SKIP() << "no permission to install a filter";
  EXPECT_TRUE(WasKilledByFilter(status));
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
