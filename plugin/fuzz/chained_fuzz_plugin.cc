// SPDX-License-Identifier: Apache-2.0
// A chained plugin for the fuzzer. It ends the process if it is given a context, a parent or a
// handle that it has not made. Its own answers are as bad as the interface allows: errors, null
// handles, handles that it does not store, and no context.
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "plugin/nccl/profiler_abi.h"

namespace abi = nccl_exporter::abi;

namespace {

constexpr uint64_t kContext = 0xc047e87000000000, kEvent = 0xe7e8700000000000;
constexpr uint64_t kTags = 0xffffffff00000000;
constexpr int kMask = abi::kGroup | abi::kColl | abi::kP2p | abi::kProxyStep | abi::kKernelCh |
                      abi::kNetPlugin | abi::kKernelLaunch;
constexpr abi::Result kError = 3;

std::atomic<uint64_t> calls{1};

void Expect(bool is_right, const char* what, const void* value) {
  if (is_right) return;
  std::fprintf(stderr, "the chained plugin was given a wrong %s: %p\n", what, value);
  std::abort();
}

bool IsOwn(const void* value, uint64_t tag) {
  const auto bits = reinterpret_cast<uintptr_t>(value);
  return bits == 0 || ((bits & kTags) == tag && (bits & ~kTags) < calls);
}

abi::Result Init(void** context, int* mask) {
  const uint64_t call = calls++;
  __atomic_store_n(mask, kMask, __ATOMIC_RELAXED);  // others may be reading it
  if (call % 7 == 0) return kError;
  if (call % 5 != 0) *context = reinterpret_cast<void*>(kContext | call);
  return abi::kSuccess;
}
abi::Result InitV4(void** context, int* mask, const char*, uint64_t, int, int, int, abi::Logger) {
  return Init(context, mask);
}
[[maybe_unused]] abi::Result InitV5(void** context, uint64_t, int* mask, const char*, int, int, int,
                                    abi::Logger) {
  return Init(context, mask);
}

template <typename Descriptor>
abi::Result Start(void* context, void** handle, Descriptor* d) {
  Expect(IsOwn(context, kContext), "context", context);
  Expect(IsOwn(d->parentObj, kEvent), "parent", d->parentObj);
  if constexpr (requires { d->coll.parentGroup; }) {
    if (d->type == abi::kColl)
      Expect(IsOwn(d->coll.parentGroup, kEvent), "group", d->coll.parentGroup);
    if (d->type == abi::kP2p)
      Expect(IsOwn(d->p2p.parentGroup, kEvent), "group", d->p2p.parentGroup);
  }
  const uint64_t call = calls++ & ~kTags;
  if (call % 11 == 0) return kError;
  *handle = call % 13 == 0 ? nullptr : reinterpret_cast<void*>(kEvent | call);
  return call % 17 == 0 ? kError : abi::kSuccess;
}

abi::Result Stop(void* handle) {
  Expect(handle != nullptr && IsOwn(handle, kEvent), "handle to stop", handle);
  return kError;
}

abi::Result Record(void* handle, int, abi::StateArgs*) {
  Expect(handle != nullptr && IsOwn(handle, kEvent), "handle of a state", handle);
  return kError;
}

abi::Result Finalize(void* context) {
  Expect(IsOwn(context, kContext), "context to finalize", context);
  return kError;
}

}  // namespace

#define EXPORT_TABLE(version, table, init)                                       \
  extern "C" {                                                                   \
  __attribute__((visibility("default"))) abi::table<abi::DescriptorV##version>   \
      ncclProfiler_v##version{nullptr, init,   Start<abi::DescriptorV##version>, \
                              Stop,    Record, Finalize};                        \
  }

EXPORT_TABLE(4, ProfilerV4, InitV4)
#ifndef FUZZ_V4_ONLY
EXPORT_TABLE(5, ProfilerV5, InitV5)
EXPORT_TABLE(6, ProfilerV5, InitV5)
EXPORT_TABLE(7, ProfilerV5, InitV5)
#endif
