// SPDX-License-Identifier: Apache-2.0
#include "simulator/loader/profiler_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "simulator/device/virtual_clock.h"
#include "simulator/loader/plugin_search.h"

namespace nccl_exporter::sim {
namespace {

constexpr int kLogWarn = 2;
constexpr int kLogInfo = 3;
constexpr unsigned long kLogInit = 1;

using InitV1 = int (*)(void** context, int* mask);
using InitV4 = int (*)(void** context, int* mask, const char* name, uint64_t id, int nodes,
                       int ranks, int rank, decltype(&NcclSimLog) log);
using InitV5 = int (*)(void** context, uint64_t id, int* mask, const char* name, int nodes,
                       int ranks, int rank, decltype(&NcclSimLog) log);

int CallInit(int api_version, void* init, const CommunicatorIdentity& c, void** context,
             const NcclLibrary& nccl) {
  if (api_version <= 3) return reinterpret_cast<InitV1>(init)(context, nccl.event_mask);
  if (api_version == 4) {
    return reinterpret_cast<InitV4>(init)(context, nccl.event_mask, c.name, c.id, c.nodes, c.ranks,
                                          c.rank, nccl.log);
  }
  return reinterpret_cast<InitV5>(init)(context, c.id, nccl.event_mask, c.name, c.nodes, c.ranks,
                                        c.rank, nccl.log);
}

}  // namespace

void ProfilerPlugin::Say(const std::string& message) const {
  nccl_.log(kLogInfo, kLogInit, __FILE__, __LINE__, "%s", message.c_str());
}

void* ProfilerPlugin::OpenLibrary() const {
  const PluginSearch search = PluginSearchOf(
      release_, search_value_ ? std::optional<std::string_view>(*search_value_) : std::nullopt);
  if (search.is_disabled) return nullptr;
  if (search.is_in_main_program) return dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  std::string reasons;
  for (const std::string& name : search.libraries) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    reasons += std::string(reasons.empty() ? "" : "; ") + dlerror();
  }
  nccl_.log(kLogWarn, kLogInit, __FILE__, __LINE__,
            "no profiler plugin, the job runs without one: %s", reasons.c_str());
  return nullptr;
}

// The newest symbol wins. An older one than the release's own would be played through NCCL's shims,
// which the simulator does not have.
bool ProfilerPlugin::FindSymbol() {
  for (const std::string& symbol : PluginSymbols(release_)) {
    const void* object = dlsym(library_, symbol.c_str());
    if (object == nullptr) continue;
    if (symbol != PluginSymbols(release_).front()) {
      nccl_.log(kLogWarn, kLogInit, __FILE__, __LINE__,
                "the plugin has only %s, which NCCL %d would call through a shim; this is not "
                "simulated, so the job runs without it",
                symbol.c_str(), release_.nccl_version());
      return false;
    }
    std::memcpy(&functions_, object, sizeof(functions_));
    Say(fmt::format("profiler plugin '{}' by {}", functions_.name, symbol));
    return true;
  }
  nccl_.log(kLogWarn, kLogInit, __FILE__, __LINE__,
            "the plugin has no ncclProfiler symbol, the job runs without it");
  return false;
}

void ProfilerPlugin::Load() {
  const std::lock_guard lock(mutex_);
  if (has_failed_ || communicators_++ > 0) return;
  library_ = OpenLibrary();
  has_failed_ = library_ == nullptr || !FindSymbol();
  is_loaded_.store(!has_failed_, std::memory_order_release);
}

void ProfilerPlugin::Unload() {
  const std::lock_guard lock(mutex_);
  if (has_failed_ || --communicators_ > 0) return;
  is_loaded_.store(false, std::memory_order_release);
  dlclose(library_);
}

void ProfilerPlugin::Init(const CommunicatorIdentity& communicator, void** context,
                          int64_t now_ns) {
  Load();
  if (!IsLoaded()) return;
  const VirtualTime time(now_ns);
  const int former_mask = __atomic_load_n(nccl_.event_mask, __ATOMIC_RELAXED);
  const int result =
      CallInit(release_.api_version(), functions_.init, communicator, context, nccl_);
  if (result != 0) {
    nccl_.log(kLogWarn, kLogInit, __FILE__, __LINE__, "init of plugin '%s' returned %d",
              functions_.name, result);
  }
  const std::lock_guard lock(mutex_);
  const int mask = __atomic_load_n(nccl_.event_mask, __ATOMIC_RELAXED);
  if (mask != former_mask || !controlled_mask_) plugin_mask_ = mask;
  if (controlled_mask_) ApplyMask();
}

void ProfilerPlugin::ApplyMask() {
  const int mask = controlled_mask_ ? static_cast<int>(*controlled_mask_) : plugin_mask_;
  __atomic_store_n(nccl_.event_mask, mask, __ATOMIC_RELAXED);
}

void ProfilerPlugin::ControlMask(std::optional<uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  if (mask == controlled_mask_) return;
  controlled_mask_ = mask;
  ApplyMask();
}

void ProfilerPlugin::Finalize(void* context, int64_t now_ns) {
  if (!IsLoaded()) return;
  if (context != nullptr || release_.FinalizesNullContext()) {
    const VirtualTime time(now_ns);
    functions_.finalize(context);
  }
  Unload();
}

void ProfilerPlugin::Start(void* context, void** handle, Descriptor& descriptor,
                           int64_t now_ns) const {
  const VirtualTime time(now_ns);
  functions_.start(context, handle, descriptor.data());
}

void ProfilerPlugin::Stop(void* handle, int64_t now_ns) const {
  const VirtualTime time(now_ns);
  functions_.stop(handle);
}

void ProfilerPlugin::Record(void* handle, EventState state, StateArguments* arguments,
                            int64_t now_ns) const {
  const VirtualTime time(now_ns);
  functions_.record(handle, state, arguments == nullptr ? nullptr : arguments->data());
}

}  // namespace nccl_exporter::sim
