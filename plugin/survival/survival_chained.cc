// SPDX-License-Identifier: Apache-2.0
// A chained plugin that asks for everything and does what the test says. SURVIVAL_VERSIONS has a
// bit for each API version that it exports.
#include "plugin/survival/survival_chained.h"

#include "plugin/nccl/profiler_abi.h"

namespace abi = nccl_exporter::abi;

// A function of the test program.
extern "C" void survival_advance_clock(uint64_t ns);

extern "C" {
nccl_exporter::plugin::survival::Chained survival_chained{};
}

namespace {

auto& chained = survival_chained;
char context_of_all, event_of_all;

abi::Result Init(void** context, int* mask) {
  ++chained.inits;
  __atomic_store_n(mask, chained.mask, __ATOMIC_RELAXED);
  if (chained.has_context) *context = &context_of_all;
  return chained.init_result;
}
[[maybe_unused]] abi::Result InitV1(void** context, int* mask) { return Init(context, mask); }
[[maybe_unused]] abi::Result InitV4(void** context, int* mask, const char*, uint64_t, int, int, int,
                                    abi::Logger) {
  return Init(context, mask);
}
[[maybe_unused]] abi::Result InitV5(void** context, uint64_t, int* mask, const char*, int, int, int,
                                    abi::Logger) {
  return Init(context, mask);
}

abi::Result End(std::atomic<uint64_t>& count, bool is_right) {
  ++count;
  if (!is_right) ++chained.wrong;
  survival_advance_clock(chained.callback_ns);
  return chained.result;
}

template <typename Descriptor>
abi::Result Start(void* context, void** handle, Descriptor* d) {
  if (chained.has_handles) *handle = &event_of_all;
  chained.descriptor = d;
  const bool is_own = d->parentObj == nullptr || d->parentObj == &event_of_all;
  return End(chained.starts,
             is_own && context == (chained.has_context ? &context_of_all : nullptr));
}
abi::Result Stop(void* handle) { return End(chained.stops, handle == &event_of_all); }
abi::Result Record(void* handle, int, abi::StateArgs*) {
  return End(chained.records, handle == &event_of_all);
}
abi::Result Finalize(void* context) {
  ++chained.finalizes;
  if (context != (chained.has_context ? &context_of_all : nullptr)) ++chained.wrong;
  return chained.result;
}

}  // namespace

#define EXPORT_TABLE(version, table, init)                                          \
  extern "C" {                                                                      \
  abi::table<abi::DescriptorV##version> ncclProfiler_v##version{                    \
      "difficult", init, Start<abi::DescriptorV##version>, Stop, Record, Finalize}; \
  }

#if SURVIVAL_VERSIONS & 1 << 1
EXPORT_TABLE(1, ProfilerV1, InitV1)
#endif
#if SURVIVAL_VERSIONS & 1 << 2
EXPORT_TABLE(2, ProfilerV1, InitV1)
#endif
#if SURVIVAL_VERSIONS & 1 << 3
EXPORT_TABLE(3, ProfilerV1, InitV1)
#endif
#if SURVIVAL_VERSIONS & 1 << 4
EXPORT_TABLE(4, ProfilerV4, InitV4)
#endif
#if SURVIVAL_VERSIONS & 1 << 5
EXPORT_TABLE(5, ProfilerV5, InitV5)
#endif
#if SURVIVAL_VERSIONS & 1 << 6
EXPORT_TABLE(6, ProfilerV5, InitV5)
#endif
#if SURVIVAL_VERSIONS & 1 << 7
EXPORT_TABLE(7, ProfilerV5, InitV5)
#endif
