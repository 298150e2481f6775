// SPDX-License-Identifier: Apache-2.0
// A profiler plugin that does nothing: it asks NCCL for the events named by EMPTY_PROFILER_MASK, or
// for those that the plugin EMPTY_PROFILER_LIKE asks for, and drops them. What NCCL itself spends
// on announcing is measured with it.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

namespace {

char handle;  // NCCL up to 2.27 announces the members of a group only where the group has a handle

template <typename... Arguments>
struct Table {
  const char* name;
  int (*init)(void** context, Arguments...);
  int (*start_event)(void* context, void** event, void* descriptor);
  int (*stop_event)(void* event);
  int (*record_event_state)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};

// Writes the mask that EMPTY_PROFILER_MASK has, or calls the init of the other plugin for it.
template <typename... Arguments>
void SetMask(const char* symbol, int* mask, Arguments... arguments) {
  const char* number = getenv("EMPTY_PROFILER_MASK");
  const char* path = getenv("EMPTY_PROFILER_LIKE");
  if (number != nullptr) __atomic_store_n(mask, atoi(number), __ATOMIC_RELAXED);
  void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) return;
  const auto* other = static_cast<const Table<Arguments...>*>(dlsym(library, symbol));
  void* context = nullptr;
  if (other != nullptr) other->init(&context, arguments...);
}

template <int kVersion>
constexpr char kSymbol[] = {
    'n', 'c', 'c', 'l', 'P', 'r', 'o', 'f', 'i', 'l', 'e', 'r', '_', 'v', '0' + kVersion, '\0'};

template <int kVersion>
int InitOfV1(void** context, int* mask) {
  *context = &handle;
  return SetMask(kSymbol<kVersion>, mask, mask), 0;
}
template <int kVersion>
int InitOfV4(void** context, int* mask, const char* name, uint64_t id, int nodes, int ranks,
             int rank, void* logger) {
  *context = &handle;
  return SetMask(kSymbol<kVersion>, mask, mask, name, id, nodes, ranks, rank, logger), 0;
}
template <int kVersion>
int InitOfV5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
             int rank, void* logger) {
  *context = &handle;
  return SetMask(kSymbol<kVersion>, mask, id, mask, name, nodes, ranks, rank, logger), 0;
}
int StartEvent(void*, void** event, void*) {
  *event = &handle;
  return 0;
}
int StopEvent(void*) { return 0; }
int RecordEventState(void*, int, void*) { return 0; }
int Finalize(void*) { return 0; }

template <typename... Arguments>
constexpr Table<Arguments...> TableOf(int (*init)(void**, Arguments...)) {
  return {"empty", init, StartEvent, StopEvent, RecordEventState, Finalize};
}

}  // namespace

extern "C" {

#define EMPTY_PROFILER(version, init)                                   \
  __attribute__((visibility("default"))) extern const decltype(TableOf( \
      init)) ncclProfiler_v##version = TableOf(init)

EMPTY_PROFILER(1, InitOfV1<1>);
EMPTY_PROFILER(2, InitOfV1<2>);
EMPTY_PROFILER(3, InitOfV1<3>);
EMPTY_PROFILER(4, InitOfV4<4>);
EMPTY_PROFILER(5, InitOfV5<5>);
EMPTY_PROFILER(6, InitOfV5<6>);
EMPTY_PROFILER(7, InitOfV5<7>);

}  // extern "C"
