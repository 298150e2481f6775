// SPDX-License-Identifier: Apache-2.0
// The plugin FAULTY_PROFILER_OF with the fault that FAULTY_PROFILER names: `durations` (a quarter
// of the true ones), `counts` (each seventh collective is lost), `destroy` (never returns), `cost`
// (each callback takes twice its time). For profiler API v5 and v6.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter {
namespace {

using Descriptor = abi::DescriptorV5;  // v6 has the same beginning
using Table = abi::ProfilerV5<Descriptor>;

bool HasFault(const char* name) {
  static const std::string kFault = getenv("FAULTY_PROFILER") ? getenv("FAULTY_PROFILER") : "";
  return kFault == name;
}

const char* table_name = nullptr;  // known before the first call of the original

const Table& Original() {
  static const Table* const kTable = [] {
    void* library = dlopen(getenv("FAULTY_PROFILER_OF"), RTLD_NOW | RTLD_LOCAL);
    void* table = library == nullptr ? nullptr : dlsym(library, table_name);
    if (table == nullptr) {
      fprintf(stderr, "FAULTY_PROFILER_OF: %s\n", dlerror());
      abort();
    }
    return static_cast<const Table*>(table);
  }();
  return *kTable;
}

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

template <typename Call>
abi::Result Forward(const Call& call) {
  if (!HasFault("cost")) return call();
  const uint64_t start = Now();
  const abi::Result result = call();
  const uint64_t end = 2 * Now() - start;
  while (Now() < end) continue;
  return result;
}

// Starts of the kernel channels that this progress thread has in flight.
thread_local std::map<void*, uint64_t> gpu_starts;

template <int kVersion>
abi::Result Init(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
                 int rank, abi::Logger logger) {
  table_name = kVersion == 5 ? "ncclProfiler_v5" : "ncclProfiler_v6";
  return Original().init(context, id, mask, name, nodes, ranks, rank, logger);
}

abi::Result StartEvent(void* context, void** handle, Descriptor* event) {
  static thread_local int collectives = 0;
  *handle = nullptr;
  if (event->type == abi::kColl && HasFault("counts") && ++collectives % 7 == 0)
    return abi::kSuccess;
  const abi::Result result = Forward([&] { return Original().startEvent(context, handle, event); });
  if (event->type == abi::kKernelCh && HasFault("durations"))
    gpu_starts[*handle] = event->kernelCh.pTimer;
  return result;
}

abi::Result StopEvent(void* handle) {
  return Forward([&] { return Original().stopEvent(handle); });
}

abi::Result RecordEventState(void* handle, int state, abi::StateArgs* arguments) {
  if (state == abi::kStateKernelChStop && HasFault("durations")) {
    const uint64_t start = gpu_starts[handle];
    arguments->pTimer = start + (arguments->pTimer - start) / 4;
    gpu_starts.erase(handle);
  }
  return Forward([&] { return Original().recordEventState(handle, state, arguments); });
}

abi::Result Finalize(void* context) {
  while (HasFault("destroy")) pause();
  return Original().finalize(context);
}

}  // namespace
}  // namespace nccl_exporter

extern "C" {

#define FAULTY(version)                                                                          \
  __attribute__((                                                                                \
      visibility("default"))) extern const nccl_exporter::Table ncclProfiler_v##version {        \
    "faulty", nccl_exporter::Init<version>, nccl_exporter::StartEvent, nccl_exporter::StopEvent, \
        nccl_exporter::RecordEventState, nccl_exporter::Finalize                                 \
  }

FAULTY(5);
FAULTY(6);

}  // extern "C"
