// SPDX-License-Identifier: Apache-2.0
// What the plugin's callbacks cost, in NCCL 2.30's sequence through the exported v6 table, beside the price of one
// clock reading (T), the unit in which the budget is given.
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "plugin/profiler_abi.h"

extern "C" const nccl_exporter::abi::ProfilerV5<nccl_exporter::abi::DescriptorV6> ncclProfiler_v6;

namespace nccl_exporter {
namespace {

constexpr const auto& kTable = ncclProfiler_v6;

void* OpenCommunicator() {
  static const bool is_set_up = [] {
    static const std::string directory = std::filesystem::temp_directory_path() / "callback_benchmark";
    std::filesystem::remove_all(directory);
    std::filesystem::create_directory(directory);
    setenv("NCCL_EXPORTER_DIR", directory.c_str(), 1);
    setenv("NCCL_EXPORTER_KERNEL_TIMING", "on", 1);
    return true;
  }();
  (void)is_set_up;
  static int mask = 0;
  static uint64_t id = 0;
  void* context = nullptr;
  kTable.init(&context, ++id, &mask, "dp", 1, 8, 0, nullptr);
  return context;
}

// The user thread's part of one AllReduce; returns the handle of its Coll.
void* Call(void* context, uint8_t channels) {
  void* group_api = nullptr;
  void* call = nullptr;
  void* group = nullptr;
  void* coll = nullptr;
  abi::DescriptorV6 descriptor{};
  descriptor.type = abi::kGroupApi;
  kTable.startEvent(context, &group_api, &descriptor);
  kTable.recordEventState(group_api, 23, nullptr);
  descriptor.type = abi::kCollApi;
  descriptor.parentObj = group_api;
  descriptor.collApi = {"AllReduce", 1 << 20, "ncclFloat32", 0, nullptr, false};
  kTable.startEvent(context, &call, &descriptor);
  kTable.stopEvent(call);
  kTable.recordEventState(group_api, 24, nullptr);
  descriptor.type = abi::kGroup;
  descriptor.parentObj = nullptr;
  kTable.startEvent(context, &group, &descriptor);
  descriptor.type = abi::kColl;
  descriptor.parentObj = call;
  descriptor.coll = {};
  descriptor.coll.func = "AllReduce";
  descriptor.coll.count = 1 << 20;
  descriptor.coll.datatype = "ncclFloat32";
  descriptor.coll.nChannels = channels;
  descriptor.coll.parentGroup = group;
  kTable.startEvent(context, &coll, &descriptor);
  kTable.stopEvent(coll);
  kTable.stopEvent(group);
  kTable.stopEvent(group_api);
  return coll;
}

// The descriptor is NCCL's to fill in, not the plugin's cost: one is kept, and the fields that change are set.
void* StartChannel(void* context, void* coll, uint8_t channel, uint64_t gpu_ns) {
  static abi::DescriptorV6 descriptor = [] {
    abi::DescriptorV6 d{};
    d.type = abi::kKernelCh;
    return d;
  }();
  descriptor.parentObj = coll;
  descriptor.kernelCh = {channel, gpu_ns};
  void* handle = nullptr;
  kTable.startEvent(context, &handle, &descriptor);
  return handle;
}

void StopChannel(void* handle, uint64_t gpu_ns) {
  abi::StateArgs args{gpu_ns};
  kTable.recordEventState(handle, abi::kStateKernelChStop, &args);
  kTable.stopEvent(handle);
}

uint64_t ReadClock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// A GPU clock that can be believed, by the processor's counter where there is one: the cheapest true clock there is,
// but part of the figures all the same.
class GpuClock {
 public:
#if defined(__x86_64__)
  GpuClock() {
    constexpr uint64_t kCalibrationNs = 20'000'000;
    counter_ = __builtin_ia32_rdtsc();
    base_ns_ = ReadClock();
    while (ReadClock() < base_ns_ + kCalibrationNs) continue;
    ns_per_count_ =
        static_cast<double>(ReadClock() - base_ns_) / static_cast<double>(__builtin_ia32_rdtsc() - counter_);
  }
  uint64_t Now() const {
    return base_ns_ + static_cast<uint64_t>(ns_per_count_ * static_cast<double>(__builtin_ia32_rdtsc() - counter_));
  }
#else
  uint64_t Now() const { return ReadClock(); }
#endif
  static constexpr uint64_t kRunNs = 40;  // shorter than a launch takes here

 private:
  uint64_t counter_ = 0;
  uint64_t base_ns_ = 0;
  double ns_per_count_ = 0;
};

void ClockReading(benchmark::State& state) {
  for (auto _ : state) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    benchmark::DoNotOptimize(now);
  }
}
BENCHMARK(ClockReading);

// All callbacks of one AllReduce on one thread.
void Collective(benchmark::State& state) {
  void* context = OpenCommunicator();
  const auto channels = static_cast<uint8_t>(state.range(0));
  std::vector<void*> handles(channels);
  static const GpuClock clock;
  for (auto _ : state) {
    void* coll = Call(context, channels);
    const uint64_t gpu_ns = clock.Now();
    for (uint8_t c = 0; c < channels; ++c) handles[c] = StartChannel(context, coll, c, gpu_ns);
    if (handles[0] == nullptr) state.SkipWithError("the communicator is not followed any more");
    for (uint8_t c = 0; c < channels; ++c) StopChannel(handles[c], gpu_ns + GpuClock::kRunNs);
  }
  state.SetItemsProcessed(state.iterations());
  kTable.finalize(context);
}
BENCHMARK(Collective)->Arg(1)->Arg(2)->Arg(8)->Arg(24)->Arg(32);

void GroupOfEight(benchmark::State& state) {
  void* context = OpenCommunicator();
  static const GpuClock clock;
  std::vector<void*> colls(8);
  for (auto _ : state) {
    abi::DescriptorV6 descriptor{};
    void* group = nullptr;
    descriptor.type = abi::kGroup;
    kTable.startEvent(context, &group, &descriptor);
    for (void*& coll : colls) {
      descriptor.type = abi::kColl;
      descriptor.coll = {};
      descriptor.coll.func = "AllGather";
      descriptor.coll.count = 1 << 20;
      descriptor.coll.datatype = "ncclInt8";
      descriptor.coll.nChannels = 1;
      descriptor.coll.parentGroup = group;
      kTable.startEvent(context, &coll, &descriptor);
      kTable.stopEvent(coll);
    }
    kTable.stopEvent(group);
    uint8_t channel = 0;
    const uint64_t gpu_ns = clock.Now();
    for (void* coll : colls) StopChannel(StartChannel(context, coll, channel++, gpu_ns), gpu_ns + GpuClock::kRunNs);
  }
  state.SetItemsProcessed(state.iterations() * 8);
  kTable.finalize(context);
}
BENCHMARK(GroupOfEight);

void StaleHandle(benchmark::State& state) {
  void* context = OpenCommunicator();
  void* handle = StartChannel(context, Call(context, 1), 0, 1000);
  StopChannel(handle, 2000);
  for (auto _ : state) kTable.stopEvent(handle);
  kTable.finalize(context);
}
BENCHMARK(StaleHandle);

}  // namespace
}  // namespace nccl_exporter
