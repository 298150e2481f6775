// SPDX-License-Identifier: Apache-2.0
// Script of the benchmarks: NCCL 2.30's callbacks of one AllReduce through the exported v6 table of
// the real library, and a GPU clock that can be believed. The descriptors are NCCL's to fill in,
// not the plugin's cost: they are kept, and only the fields that change are set.
#pragma once

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter::plugin {

inline uint64_t ReadBenchmarkClock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// By the processor's counter where there is one: the cheapest true clock there is. Calibrates
// itself for 20 ms.
class GpuClock {
 public:
#if defined(__x86_64__)
  GpuClock() {
    constexpr uint64_t kCalibrationNs = 20'000'000;
    counter_ = __builtin_ia32_rdtsc();
    base_ns_ = ReadBenchmarkClock();
    while (ReadBenchmarkClock() < base_ns_ + kCalibrationNs) continue;
    ns_per_count_ = static_cast<double>(ReadBenchmarkClock() - base_ns_) /
                    static_cast<double>(__builtin_ia32_rdtsc() - counter_);
  }
  uint64_t Now() const {
    return base_ns_ + static_cast<uint64_t>(ns_per_count_ *
                                            static_cast<double>(__builtin_ia32_rdtsc() - counter_));
  }
#else
  uint64_t Now() const { return ReadBenchmarkClock(); }
#endif
  static constexpr uint64_t kRunNs = 40;  // shorter than a launch takes here

 private:
  uint64_t counter_ = 0;
  uint64_t base_ns_ = 0;
  double ns_per_count_ = 0;
};

// One thread's callbacks on one communicator at a time.
class CallbackScript {
 public:
  using Table = abi::ProfilerV5<abi::DescriptorV6>;

  // The table of the library in the folder above the program's; its segments go to a directory of
  // their own. Ends the program if there is none.
  static const Table& LoadTable() {
    static const Table* const table = [] {
      const std::filesystem::path directory =
          std::filesystem::temp_directory_path() / "nccl-exporter-benchmark";
      std::filesystem::remove_all(directory);
      std::filesystem::create_directory(directory);
      setenv("NCCL_EXPORTER_DIR", directory.c_str(), 1);
      setenv("NCCL_EXPORTER_KERNEL_TIMING", "on", 1);
      setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);
      setenv("NCCL_EXPORTER_NETWORK_TIMING", "always", 1);
      const auto program = std::filesystem::read_symlink("/proc/self/exe");
      const auto path = program.parent_path().parent_path() / "libnccl-profiler-exporter.so";
      void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      const void* symbol = library != nullptr ? dlsym(library, "ncclProfiler_v6") : nullptr;
      if (symbol == nullptr) {
        std::fprintf(stderr, "cannot load %s\n", path.c_str());
        std::exit(1);
      }
      return static_cast<const Table*>(symbol);
    }();
    return *table;
  }

  explicit CallbackScript(const Table& table) : table_(table) {
    group_api_.type = abi::kGroupApi;
    call_.type = abi::kCollApi;
    call_.collApi = {"AllReduce", 1 << 20, "ncclFloat32", 0, nullptr, false};
    group_.type = abi::kGroup;
    coll_.type = abi::kColl;
    coll_.coll.func = "AllReduce";
    coll_.coll.count = 1 << 20;
    coll_.coll.datatype = "ncclFloat32";
    channel_.type = abi::kKernelCh;
    proxy_operation_.type = abi::kProxyOp;
    proxy_operation_.proxyOp = {getpid(), 0, 1, 0, 1 << 19, 1};
    step_.type = abi::kProxyStep;
  }

  // Steps are timed with more than one node.
  static void* OpenCommunicator(const Table& table, int nodes = 1) {
    static int mask = 0;
    static uint64_t id = 0;
    void* context = nullptr;
    table.init(&context, ++id, &mask, "dp", nodes, 8, 0, nullptr);
    return context;
  }

  // The user thread's part; returns the handle of the Coll.
  void* Call(void* context, uint8_t channels) {
    void* group_api = nullptr;
    void* group = nullptr;
    void* coll = nullptr;
    table_.startEvent(context, &group_api, &group_api_);
    table_.recordEventState(group_api, 23, nullptr);
    call_.parentObj = group_api;
    table_.startEvent(context, &coll_.parentObj, &call_);
    table_.stopEvent(coll_.parentObj);
    table_.recordEventState(group_api, 24, nullptr);
    table_.startEvent(context, &group, &group_);
    coll_.coll.nChannels = channels;
    coll_.coll.parentGroup = group;
    table_.startEvent(context, &coll, &coll_);
    table_.stopEvent(coll);
    table_.stopEvent(group);
    table_.stopEvent(group_api);
    return coll;
  }

  // The progress thread's part.
  void* StartChannel(void* context, void* coll, uint8_t channel, uint64_t gpu_ns) {
    channel_.parentObj = coll;
    channel_.kernelCh = {channel, gpu_ns};
    void* handle = nullptr;
    table_.startEvent(context, &handle, &channel_);
    return handle;
  }
  void StopChannel(void* handle, uint64_t gpu_ns) {
    abi::StateArgs args{.pTimer = gpu_ns};
    table_.recordEventState(handle, abi::kStateKernelChStop, &args);
    table_.stopEvent(handle);
  }
  void* StartProxyOperation(void* context, void* coll, bool is_send) {
    proxy_operation_.parentObj = coll;
    proxy_operation_.proxyOp.isSend = is_send ? 1 : 0;
    void* handle = nullptr;
    table_.startEvent(context, &handle, &proxy_operation_);
    return handle;
  }
  void* StartStep(void* context, void* proxy_operation, int step) {
    step_.parentObj = proxy_operation;
    step_.proxyStep.step = step;
    void* handle = nullptr;
    table_.startEvent(context, &handle, &step_);
    return handle;
  }
  void EnterState(void* step, int state) {
    abi::StateArgs args{.transSize = 1 << 19};
    table_.recordEventState(step, state, &args);
  }
  void Stop(void* handle) { table_.stopEvent(handle); }

 private:
  const Table& table_;
  abi::DescriptorV6 group_api_{};
  abi::DescriptorV6 call_{};
  abi::DescriptorV6 group_{};
  abi::DescriptorV6 coll_{};
  abi::DescriptorV6 channel_{};
  abi::DescriptorV6 proxy_operation_{};
  abi::DescriptorV6 step_{};
};

}  // namespace nccl_exporter::plugin
