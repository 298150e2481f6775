// SPDX-License-Identifier: Apache-2.0
// NCCL's side of one communicator, for any profiler API version, through the exported tables of the
// real library: each method is one callback. Nothing in here allocates once a Caller is made, so
// that hot paths can be played under watch.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <thread>

#include "plugin/nccl/profiler_abi.h"
#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin::survival {

inline constexpr char kLibrary[] = "plugin/libnccl-profiler-exporter.so";
// Content of a handle's place before a start.
inline void* const kOldContent = reinterpret_cast<void*>(0x1234);

template <int kVersion>
struct Api;
template <>
struct Api<1> {
  using Descriptor = abi::DescriptorV1;
  using Table = abi::ProfilerV1<Descriptor>;
};
template <>
struct Api<2> {
  using Descriptor = abi::DescriptorV2;
  using Table = abi::ProfilerV1<Descriptor>;
};
template <>
struct Api<3> {
  using Descriptor = abi::DescriptorV3;
  using Table = abi::ProfilerV1<Descriptor>;
};
template <>
struct Api<4> {
  using Descriptor = abi::DescriptorV4;
  using Table = abi::ProfilerV4<Descriptor>;
};
template <>
struct Api<5> {
  using Descriptor = abi::DescriptorV5;
  using Table = abi::ProfilerV5<Descriptor>;
};
template <>
struct Api<6> {
  using Descriptor = abi::DescriptorV6;
  using Table = abi::ProfilerV5<Descriptor>;
};
template <>
struct Api<7> {
  using Descriptor = abi::DescriptorV7;
  using Table = abi::ProfilerV5<Descriptor>;
};

// As the CUDA driver runs a host function: on a thread that makes no calls.
template <typename Function>
void OnHostThread(Function function) {
  std::thread(function).join();
}

namespace nccl {

// The plugin finds NCCL's version by the address of its mask: both lie in the test program
// (survival_nccl.cc).
int& NewMask(int api_version);
void Report(int nccl_version);  // from the next init on

}  // namespace nccl

// The table of a version; nullptr if the library has none.
template <int kVersion>
const typename Api<kVersion>::Table* LoadTable() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const char symbol[] = {
      'n', 'c', 'c', 'l', 'P', 'r', 'o', 'f', 'i', 'l', 'e', 'r', '_', 'v', '0' + kVersion, '\0'};
  return library == nullptr
             ? nullptr
             : static_cast<const typename Api<kVersion>::Table*>(dlsym(library, symbol));
}

// A GPU clock that runs with the CPU's, from another epoch.
inline uint64_t GpuNow() { return NowNs() + 1'000'000'000'000'000'000u; }

// A task of the user: by default 1 MiB of floats to all.
struct Task {
  const char* function = "AllReduce";
  size_t count = 1 << 18;
  const char* datatype = "ncclFloat32";
  uint8_t channels = 2;
  int peer = -1;  // of a Send or Recv; -1: a collective
  uint64_t sequence = 0;
};

struct Member {
  uint64_t id = 0xabc;
  int rank = 1;
  int ranks = 8;
  const char* name = nullptr;
  int nodes = 2;
  abi::Logger logger = nullptr;
  int* mask = nullptr;  // that of another communicator; nullptr: one of its own
};

template <int kVersion>
class Caller {
 public:
  using Descriptor = typename Api<kVersion>::Descriptor;
  using Table = typename Api<kVersion>::Table;
  static constexpr bool kHasCalls = kVersion >= 5;
  static constexpr bool kHasKernels = kVersion >= 3;
  static constexpr bool kHasGpuTimes = kVersion >= 4;
  static constexpr bool kHasSteps = kVersion >= 2;

  explicit Caller(Member member = {})
      : table(LoadTable<kVersion>()),
        mask(member.mask != nullptr ? *member.mask : nccl::NewMask(kVersion)) {
    Init(member);
  }

  void Init(const Member& member) {
    if constexpr (kVersion <= 3) {
      result = table->init(&context, &mask);
    } else if constexpr (kVersion == 4) {
      result = table->init(&context, &mask, member.name, member.id, member.nodes, member.ranks,
                           member.rank, member.logger);
    } else {
      result = table->init(&context, member.id, &mask, member.name, member.nodes, member.ranks,
                           member.rank, member.logger);
    }
    id_ = member.id;
    rank_ = member.rank;
  }
  void Finalize() { table->finalize(context); }

  // A descriptor as NCCL fills it in: everything else zero.
  static Descriptor Event(uint64_t type, void* parent = nullptr) {
    Descriptor descriptor;
    std::memset(static_cast<void*>(&descriptor), 0, sizeof(descriptor));
    descriptor.type = static_cast<decltype(descriptor.type)>(type);
    descriptor.parentObj = parent;
    return descriptor;
  }
  void* Start(Descriptor descriptor) { return StartIn(context, descriptor); }
  void* StartIn(void* other_context, Descriptor descriptor) {
    void* slot = kOldContent;
    table->startEvent(other_context, &slot, &descriptor);
    return slot;
  }
  void Stop(void* handle) { table->stopEvent(handle); }
  void Record(void* handle, int state, uint64_t* value = nullptr) {
    table->recordEventState(handle, state, reinterpret_cast<abi::StateArgs*>(value));
  }
  void Stamp(void* handle, uint64_t gpu_ns) { Record(handle, abi::kStateKernelChStop, &gpu_ns); }

  void* GroupApi(bool is_captured = false) {
    Descriptor event = Event(abi::kGroupApi);
    if constexpr (kHasCalls) event.groupApi = {is_captured, 1};
    return kHasCalls ? Start(event) : nullptr;
  }
  void* Call(void* group_api, const Task& task = {}, bool is_captured = false) {
    if constexpr (kHasCalls) {
      Descriptor event = Event(task.peer < 0 ? abi::kCollApi : abi::kP2pApi, group_api);
      if (task.peer < 0) {
        event.collApi = {task.function, task.count, task.datatype, 0, nullptr, is_captured};
      } else {
        event.p2pApi = {task.function, task.count, task.datatype, nullptr, is_captured};
      }
      return Start(event);
    }
    return nullptr;
  }
  void* Group() { return Start(Event(abi::kGroup)); }
  void* Operation(const Task& task, void* call, void* group) {
    return Start(task.peer < 0 ? Coll(task, call, group) : P2p(task, call, group));
  }
  Descriptor Coll(const Task& task, void* call, void* group) {
    Descriptor event = Event(abi::kColl);
    Fill(event, event.coll, task, call, group);
    event.coll.seqNumber = task.sequence;
    if constexpr (kVersion >= 4) event.coll.nChannels = task.channels;
    if constexpr (kVersion <= 3) event.coll.nMaxChannels = task.channels;
    return event;
  }
  Descriptor P2p(const Task& task, void* call, void* group) {
    Descriptor event = Event(abi::kP2p);
    Fill(event, event.p2p, task, call, group);
    event.p2p.peer = task.peer;
    if constexpr (kVersion >= 4) event.p2p.nChannels = task.channels;
    return event;
  }
  void* Kernel(void* operation, uint8_t channel, uint64_t gpu_ns) {
    Descriptor event = Event(abi::kKernelCh, operation);
    if constexpr (kHasKernels) event.kernelCh.channelId = channel;
    if constexpr (kHasGpuTimes) event.kernelCh.pTimer = gpu_ns;
    return kHasKernels ? Start(event) : nullptr;
  }
  void* Proxy(void* operation) { return Proxy(operation, pid_); }
  // The network transport takes it up at once.
  void* Proxy(void* operation, pid_t pid, bool is_send = true, int peer = 0) {
    void* const proxy = Queue(operation, pid, is_send, peer);
    if (kHasGpuTimes && proxy != nullptr) Record(proxy, abi::kStateProxyOpInProgress, nullptr);
    return proxy;
  }
  void* Queue(void* operation) { return Queue(operation, pid_); }
  void* Queue(void* operation, pid_t pid, bool is_send = true, int peer = 0) {
    Descriptor event = Event(abi::kProxyOp, operation);
    event.rank = rank_;
    event.proxyOp = {pid, 0, peer, 4, 1 << 19, is_send ? 1 : 0};
    return Start(event);
  }
  void* Step(void* proxy, int step) {
    Descriptor event = Event(abi::kProxyStep, proxy);
    event.rank = rank_;
    if constexpr (kHasSteps) event.proxyStep.step = step;
    return Start(event);
  }
  // The states of a step, each 1 us after the one before, and its stop. kStepBytes are moved.
  static constexpr uint64_t kStepBytes = 1 << 19;
  void RunStep(void* proxy, int step, bool is_send) {
    void* handle = Step(proxy, step);
    const auto enter = [&](int state) {
      Wait();
      uint64_t bytes = kStepBytes;
      if (handle != nullptr) Record(handle, state, kHasGpuTimes ? &bytes : nullptr);
    };
    if (is_send) {
      Posted(proxy, step, 0);
      enter(8);
      Wait();
      for (int poll = 0; poll < 3; ++poll) kHasGpuTimes ? enter(20) : Posted(proxy, step, 1);
      Posted(proxy, step + 1, 2);
      enter(9);
    } else {
      Posted(proxy, step, 4);
      for (int poll = 0; poll < 3; ++poll) handle = Step(proxy, step);
      enter(10);
      Posted(proxy, step + 1, 5);
      for (const int state : {11, 12}) enter(state);
    }
    Wait();
    if (handle != nullptr) Stop(handle);
  }
  // Whether its steps are timed.
  bool RunProxy(void* operation, bool is_send, int steps = 20, int peer = 0) {
    void* proxy = Proxy(operation, pid_, is_send, peer);
    const bool is_timed = proxy != nullptr && Step(proxy, 0) != nullptr;
    for (int step = 0; step < steps; ++step) RunStep(proxy, step, is_send);
    if (proxy != nullptr) Stop(proxy);
    return is_timed;
  }

  // Everything up to the stop of the launch, in the order of the releases of this version; the
  // operation's handle.
  void* Announce(const Task& task = {}) {
    void* group_api = GroupApi();
    if (kHasCalls) Record(group_api, 23);
    void* call = Call(group_api, task);
    if (kHasCalls) Stop(call);
    if (kHasCalls) Record(group_api, 24);
    void* operation = Launch(task, call);
    if (kHasCalls) Stop(group_api);
    return operation;
  }
  void* Launch(const Task& task, void* call) {
    void* group = Group();
    void* operation = Operation(task, call, group);
    Stop(operation);
    Stop(group);
    return operation;
  }
  void StopKernel(void* handle, uint64_t gpu_ns) {
    if (handle == nullptr) return;  // NCCL asks before both
    if (kHasGpuTimes) Stamp(handle, gpu_ns);
    Stop(handle);
  }
  // All channels of an operation from now to now; its duration by the GPU's clock. v1 and v2: its
  // proxy operations.
  uint64_t Complete(void* operation, int channels = 2) {
    void* handles[64];
    const uint64_t start_ns = GpuNow();
    for (int c = 0; c < channels; ++c) {
      handles[c] =
          kHasKernels ? Kernel(operation, static_cast<uint8_t>(c), start_ns) : Proxy(operation);
    }
    const uint64_t stop_ns = GpuNow();
    for (int c = 0; c < channels; ++c)
      kHasKernels ? StopKernel(handles[c], stop_ns) : Stop(handles[c]);
    return stop_ns - start_ns;
  }
  uint64_t Run(const Task& task = {}) { return Complete(Announce(task), task.channels); }

  const Table* table;
  void* context = nullptr;
  int& mask;
  int result = -1;

 private:
  static void Wait() {
    const uint64_t until_ns = NowNs() + 1000;
    while (NowNs() < until_ns) continue;
  }
  // Up to 2.26: a state of the operation, once that many steps have moved their bytes.
  void Posted(void* proxy, int steps, int state) {
    if constexpr (kHasGpuTimes) return;
    struct {
      uint64_t bytes;
      int steps;
    } arguments{77 + static_cast<uint64_t>(steps) * kStepBytes,
                state == 2 || state == 5 ? steps : steps + 1};
    if (proxy != nullptr) Record(proxy, state, &arguments.bytes);
  }
  template <typename Fields>
  void Fill(Descriptor& event, Fields& fields, const Task& task, void* call, void* group) {
    event.parentObj = kHasCalls ? call : group;
    event.rank = rank_;
    if constexpr (kVersion == 1) {
      fields.func = NumberOf(task.function);
      fields.datatype = std::strcmp(task.datatype, "ncclFloat32") == 0 ? 7 : 1;
    } else {
      fields.func = task.function;
      fields.datatype = task.datatype;
    }
    fields.count = task.count;
    if constexpr (kVersion <= 3) fields.commHash = id_;
    if constexpr (kHasCalls) fields.parentGroup = group;
  }
  static uint8_t NumberOf(const char* function) {
    constexpr const char* kNames[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                      "AllReduce", "",       "Send"};
    uint8_t number = 0;
    while (number < 7 && std::strcmp(kNames[number], function) != 0) ++number;
    return number;
  }

  uint64_t id_ = 0;
  int rank_ = 0;
  pid_t pid_ = getpid();
};

}  // namespace nccl_exporter::plugin::survival
