// SPDX-License-Identifier: Apache-2.0
// Cost of the plugin's callbacks by shape of the work. The budget is checked by callback_budget.cc.
#include <benchmark/benchmark.h>

#include <vector>

#include "plugin/bench/callback_script.h"

namespace nccl_exporter::plugin {
namespace {

void ClockReading(benchmark::State& state) {
  for (auto _ : state) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    benchmark::DoNotOptimize(now);
  }
}
BENCHMARK(ClockReading);

// All callbacks of one AllReduce on one thread, one after the other.
void Collective(benchmark::State& state) {
  const auto& table = CallbackScript::LoadTable();
  CallbackScript script(table);
  void* context = CallbackScript::OpenCommunicator(table);
  const auto channels = static_cast<uint8_t>(state.range(0));
  std::vector<void*> handles(channels);
  static const GpuClock clock;
  for (auto _ : state) {
    void* coll = script.Call(context, channels);
    const uint64_t gpu_ns = clock.Now();
    for (uint8_t c = 0; c < channels; ++c)
      handles[c] = script.StartChannel(context, coll, c, gpu_ns);
    if (handles[0] == nullptr) state.SkipWithError("the communicator is not followed any more");
    for (uint8_t c = 0; c < channels; ++c)
      script.StopChannel(handles[c], gpu_ns + GpuClock::kRunNs);
  }
  state.SetItemsProcessed(state.iterations());
  table.finalize(context);
}
BENCHMARK(Collective)->Arg(1)->Arg(2)->Arg(8)->Arg(24)->Arg(32);

// Eight AllGathers in one launch, one channel each.
void GroupOfEight(benchmark::State& state) {
  const auto& table = CallbackScript::LoadTable();
  CallbackScript script(table);
  void* context = CallbackScript::OpenCommunicator(table);
  static const GpuClock clock;
  std::vector<void*> colls(8);
  for (auto _ : state) {
    abi::DescriptorV6 descriptor{};
    void* group = nullptr;
    descriptor.type = abi::kGroup;
    table.startEvent(context, &group, &descriptor);
    for (void*& coll : colls) {
      descriptor.type = abi::kColl;
      descriptor.coll = {};
      descriptor.coll.func = "AllGather";
      descriptor.coll.count = 1 << 20;
      descriptor.coll.datatype = "ncclInt8";
      descriptor.coll.nChannels = 1;
      descriptor.coll.parentGroup = group;
      table.startEvent(context, &coll, &descriptor);
      table.stopEvent(coll);
    }
    table.stopEvent(group);
    uint8_t channel = 0;
    const uint64_t gpu_ns = clock.Now();
    for (void* coll : colls) {
      script.StopChannel(script.StartChannel(context, coll, channel++, gpu_ns),
                         gpu_ns + GpuClock::kRunNs);
    }
  }
  state.SetItemsProcessed(state.iterations() * 8);
  table.finalize(context);
}
BENCHMARK(GroupOfEight);

void StaleHandle(benchmark::State& state) {
  const auto& table = CallbackScript::LoadTable();
  CallbackScript script(table);
  void* context = CallbackScript::OpenCommunicator(table);
  void* handle = script.StartChannel(context, script.Call(context, 1), 0, 1000);
  script.StopChannel(handle, 2000);
  for (auto _ : state) table.stopEvent(handle);
  table.finalize(context);
}
BENCHMARK(StaleHandle);

}  // namespace
}  // namespace nccl_exporter::plugin
