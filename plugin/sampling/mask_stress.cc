// SPDX-License-Identifier: Apache-2.0
// Eight threads that call NCCL at random, with an event mask as NCCL 2.28 to 2.30 treats it,
// against the real library: no send may wait for a counter that its receive does not write, and no
// graph may hold calls of different values.
//
//   mask_stress [GROUPS] [preempted]     10000000 groups take some minutes
//
// The groups are played in many processes, one after the other: after a random number of groups
// with collectives only, point-to-point or captured calls begin. The threads take turns until
// shortly before that, until that very moment, always, or never. `preempted` gives the processor
// away between the loading of the mask and the event that tells of the call, where a change goes
// unnoticed longest. Windows open and close some thousand times as fast as in earnest.
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plugin/nccl/profiler_abi.h"

int nccl_event_mask = 0;  // not static: its address tells which library is calling

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = 23007;
  return 0;
}

namespace {

std::atomic<uint64_t> job_ns{1'700'000'000'000'000'000};

}  // namespace

// The time that the plugin reads: every thread's groups move it on.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t,
                                                                    timespec* time) noexcept {
  const uint64_t ns = job_ns.load(std::memory_order_relaxed);
  time->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}

namespace {

using namespace nccl_exporter;
using Descriptor = abi::DescriptorV6;
using Table = abi::ProfilerV5<Descriptor>;

constexpr int kThreads = 8;
constexpr int kTimingBit = abi::kKernelCh;
constexpr char kLibrary[] = "plugin/libnccl-profiler-exporter.so";

// What all processes have found, in memory that they share.
struct Account {
  std::atomic<uint64_t> groups;
  std::atomic<uint64_t> changes;        // of the bit, as threads saw it from group to group
  std::atomic<uint64_t> endless_pairs;  // a send with the bit in a group that has a receive without
  // Calls of one graph, or a graph and later calls, with different values.
  std::atomic<uint64_t> mixed_graphs;
  std::atomic<uint64_t> mixed_pairs;  // a receive with the bit and a send without: harmless
  std::atomic<uint64_t> timed;
  // kernel channels of a timed operation that found no operation.
  std::atomic<uint64_t> lost_timings;
};

enum class Kind { kCollective, kSend, kRecv, kCaptured };

struct Life {
  const Table& table;
  Account& account;
  bool is_preempted;
  uint64_t peaceful_groups;  // of all threads together, before other calls than eager collectives
                             // may come
  uint64_t groups;
  Kind trouble;
  uint64_t groups_in_turn;  // threads take turns for so many groups; then they overlap
  std::mutex turn{};
  std::atomic<uint64_t> played{0};
  std::atomic<int> graph_value{-1};  // of the bit, once something is captured
};

// A thread of the program with NCCL's thread-local state.
class Caller {
 public:
  Caller(Life& life, unsigned seed, void* context)
      : life_(life), random_(seed), context_(context) {}

  void Play() {
    for (;;) {
      const uint64_t number = life_.played.fetch_add(1, std::memory_order_relaxed);
      if (number >= life_.groups) return;
      const bool may_trouble = number >= life_.peaceful_groups && random_() % 8 == 0;
      if (number < life_.groups_in_turn) {
        const std::lock_guard turn(life_.turn);
        PlayGroup(may_trouble);
      } else {
        PlayGroup(may_trouble);
      }
      job_ns.fetch_add(random_() % 400'000, std::memory_order_relaxed);
      if (random_() % 64 == 0) sched_yield();
    }
  }

 private:
  struct Call {
    Kind kind;
    int mask;
    void* handle;
  };

  static Descriptor Event(uint64_t type, void* parent = nullptr) {
    Descriptor event;
    std::memset(static_cast<void*>(&event), 0, sizeof(event));
    event.type = type;
    event.parentObj = parent;
    return event;
  }
  void Start(void** handle, Descriptor event) { life_.table.startEvent(context_, handle, &event); }
  void Stop(void* handle) {
    if (handle != nullptr) life_.table.stopEvent(handle);
  }

  // As NCCL appends an operation: the mask is loaded, then the group is announced if it is the
  // first, then the call.
  Call Append(Kind kind) {
    const int mask = __atomic_load_n(&nccl_event_mask, __ATOMIC_RELAXED);
    if (life_.is_preempted && random_() % 4 == 0) sched_yield();
    const bool is_captured = kind == Kind::kCaptured;
    if (group_ == nullptr) {
      Descriptor event = Event(abi::kGroupApi);
      event.groupApi = {is_captured, 1};
      Start(&group_, event);
    }
    void* call = nullptr;
    if (kind == Kind::kSend || kind == Kind::kRecv) {
      Descriptor event = Event(abi::kP2pApi, group_);
      event.p2pApi = {kind == Kind::kSend ? "Send" : "Recv", 64, "ncclFloat32", nullptr, false};
      Start(&call, event);
    } else {
      Descriptor event = Event(abi::kCollApi, group_);
      event.collApi = {"AllReduce", 64, "ncclFloat32", 0, nullptr, is_captured};
      Start(&call, event);
    }
    Stop(call);
    return {kind, mask, call};
  }

  void PlayGroup(bool may_trouble) {
    std::array<Call, 6> calls;
    const size_t count = 1 + random_() % calls.size();
    for (size_t i = 0; i < count; ++i)
      calls[i] = Append(may_trouble && random_() % 2 == 0 ? KindOfTrouble() : Kind::kCollective);
    for (size_t i = 0; i < count && random_() % 16 == 0; ++i) Run(calls[i]);
    Stop(group_);
    group_ = nullptr;
    Judge(calls.data(), count);
  }

  Kind KindOfTrouble() {
    if (life_.trouble == Kind::kCaptured) return Kind::kCaptured;
    return random_() % 2 == 0 ? Kind::kSend : Kind::kRecv;
  }

  // A collective on two channels, to its end.
  void Run(const Call& call) {
    if (call.kind != Kind::kCollective) return;
    void* launch = nullptr;
    Start(&launch, Event(abi::kGroup));
    Descriptor event = Event(abi::kColl, call.handle);
    event.coll.func = "AllReduce";
    event.coll.count = 64;
    event.coll.datatype = "ncclFloat32";
    event.coll.nChannels = 2;
    event.coll.parentGroup = launch;
    void* operation = nullptr;
    Start(&operation, event);
    Stop(operation);
    Stop(launch);
    if ((call.mask & kTimingBit) == 0) return;
    life_.account.timed.fetch_add(1, std::memory_order_relaxed);
    // Between now and the delivery, and after all that ran before.
    const uint64_t start_ns = job_ns.fetch_add(3000, std::memory_order_relaxed) + 1000;
    for (uint8_t channel = 0; channel < 2; ++channel) {
      Descriptor kernel = Event(abi::kKernelCh, operation);
      kernel.kernelCh.channelId = channel;
      kernel.kernelCh.pTimer = start_ns;
      void* handle = nullptr;
      Start(&handle, kernel);
      if (handle == nullptr) {
        life_.account.lost_timings.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      abi::StateArgs arguments;
      arguments.pTimer = start_ns + 1000;
      life_.table.recordEventState(handle, abi::kStateKernelChStop, &arguments);
      Stop(handle);
    }
  }

  void Judge(const Call* calls, size_t count) {
    std::array<bool, 2> sends{}, receives{};
    for (size_t i = 0; i < count; ++i) {
      const bool is_timed = (calls[i].mask & kTimingBit) != 0;
      if (calls[i].kind == Kind::kSend) sends[is_timed] = true;
      if (calls[i].kind == Kind::kRecv) receives[is_timed] = true;
      if (calls[i].kind == Kind::kCaptured) JudgeCaptured(is_timed);
    }
    if (sends[true] && receives[false]) life_.account.endless_pairs.fetch_add(1);
    if (sends[false] && receives[true]) life_.account.mixed_pairs.fetch_add(1);
    const bool is_timed = (calls[count - 1].mask & kTimingBit) != 0;
    if (is_timed != was_timed_) life_.account.changes.fetch_add(1, std::memory_order_relaxed);
    was_timed_ = is_timed;
    life_.account.groups.fetch_add(1, std::memory_order_relaxed);
  }

  void JudgeCaptured(bool is_timed) {
    int value = -1;
    if (!life_.graph_value.compare_exchange_strong(value, is_timed) &&
        value != static_cast<int>(is_timed)) {
      life_.account.mixed_graphs.fetch_add(1);
    }
  }

  Life& life_;
  std::minstd_rand random_;
  void* context_;
  void* group_ = nullptr;
  bool was_timed_ = true;
};

// One process from its first communicator to its end.
void Live(Account& account, unsigned seed, bool is_preempted) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    _exit(1);
  }
  const auto& table = *static_cast<const Table*>(dlsym(library, "ncclProfiler_v6"));
  std::minstd_rand random(seed);
  random.discard(8);
  const uint64_t peaceful = random() % 20'000;
  const Kind trouble = random() % 3 == 0 ? Kind::kCaptured : Kind::kSend;
  const uint64_t groups = peaceful + 2000;
  const uint64_t groups_in_turn =
      std::array<uint64_t, 4>{peaceful - peaceful / 16, peaceful, groups, 0}[random() % 4];
  Life life{.table = table,
            .account = account,
            .is_preempted = is_preempted,
            .peaceful_groups = peaceful,
            .groups = groups,
            .trouble = trouble,
            .groups_in_turn = groups_in_turn};
  std::vector<Caller> callers;
  for (unsigned i = 0; i < kThreads; ++i) {
    void* context = nullptr;
    table.init(&context, 7 + i, &nccl_event_mask, nullptr, 2, 8, 0, nullptr);
    callers.emplace_back(life, seed + i * 7919, context);
  }
  std::vector<std::thread> threads;
  for (Caller& caller : callers) threads.emplace_back([&caller] { caller.Play(); });
  for (std::thread& thread : threads) thread.join();
  const int frozen = nccl_event_mask;
  const int value = life.graph_value.load();
  if (value >= 0 && value != static_cast<int>((frozen & kTimingBit) != 0))
    account.mixed_graphs.fetch_add(1);
}

}  // namespace

int main(int count, char** arguments) {
  const uint64_t groups = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 200'000;
  const bool is_preempted = count > 2 && std::strcmp(arguments[2], "preempted") == 0;
  std::string pattern = std::filesystem::temp_directory_path() / "mask_stressXXXXXX";
  const std::string directory = mkdtemp(pattern.data());
  setenv("NCCL_EXPORTER_DIR", directory.c_str(), 1);
  setenv("NCCL_EXPORTER_KERNEL_TIMING", "on", 1);
  setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);  // without it, no kernel timing on 2.30
  setenv("NCCL_EXPORTER_SAMPLING", "0.5", 1);
  setenv("NCCL_EXPORTER_SAMPLING_PERIOD_SECONDS", "0.1", 1);
  setenv("NCCL_EXPORTER_SAMPLING_LEARNING_SECONDS", "0", 1);
  setenv("NCCL_EXPORTER_NETWORK_TIMING", "0.3", 1);  // changes its own bit of the mask meanwhile
  void* shared =
      mmap(nullptr, sizeof(Account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Account& account = *new (shared) Account{};
  unsigned lives = 0;
  bool has_failed = false;
  while (account.groups < groups && !has_failed) {
    const pid_t child = fork();
    if (child == 0) {
      Live(account, ++lives * 104729, is_preempted);
      _exit(0);
    }
    ++lives;
    int status = -1;
    waitpid(child, &status, 0);
    has_failed = status != 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      std::filesystem::remove(entry.path());
  }
  std::filesystem::remove_all(directory);
  std::printf(
      "%lu groups in %u processes: %lu changes seen, %lu timed operations run\n"
      "faults: %lu endless pairs, %lu mixed graphs, %lu lost timings; harmless: %lu mixed pairs\n",
      account.groups.load(), lives, account.changes.load(), account.timed.load(),
      account.endless_pairs.load(), account.mixed_graphs.load(), account.lost_timings.load(),
      account.mixed_pairs.load());
  const bool has_played = account.changes > lives && account.timed > 0;
  if (!has_played) std::printf("too little was played to tell\n");
  const bool is_clean =
      account.endless_pairs == 0 && account.mixed_graphs == 0 && account.lost_timings == 0;
  return has_failed || !has_played || !is_clean ? 1 : 0;
}
