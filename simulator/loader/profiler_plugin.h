// SPDX-License-Identifier: Apache-2.0
// The profiler plugin as NCCL holds it: found, loaded with the first communicator, called, closed
// with the last one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "simulator/loader/nccl_library.h"
#include "simulator/release/descriptor.h"
#include "simulator/release/profiler_event.h"
#include "simulator/release/release.h"

namespace nccl_exporter::sim {

// Identity of a communicator that init reports, from v4 on.
struct CommunicatorIdentity {
  uint64_t id = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
};

// Init and Finalize may be called from any thread, also at once. The others need a communicator
// that is between the two. Each call shows the plugin the time `now_ns`, counted from the start of
// the job.
class ProfilerPlugin {
 public:
  // `search_value` is that of NCCL_PROFILER_PLUGIN.
  ProfilerPlugin(const Release& release, const NcclLibrary& nccl,
                 std::optional<std::string> search_value)
      : release_(release), nccl_(nccl), search_value_(std::move(search_value)) {}

  void Init(const CommunicatorIdentity& communicator, void** context, int64_t now_ns);
  void Finalize(void* context, int64_t now_ns);

  uint32_t Mask() const {
    return IsLoaded() ? static_cast<uint32_t>(__atomic_load_n(nccl_.event_mask, __ATOMIC_RELAXED))
                      : 0;
  }
  // Plays RAS's command CONTROL PROFILER_MASK: sets the mask for all communicators, and again after
  // each init (2.31.2 src/plugin/profiler.cc :316-328, ncclProfilerSetRasOverride). Nothing: the
  // mask that the plugin asked for.
  void ControlMask(std::optional<uint32_t> mask);
  bool IsLoaded() const { return is_loaded_.load(std::memory_order_acquire); }

  void Start(void* context, void** handle, Descriptor& descriptor, int64_t now_ns) const;
  void Stop(void* handle, int64_t now_ns) const;
  // `arguments` may be null, as NCCL's are for some states.
  void Record(void* handle, EventState state, StateArguments* arguments, int64_t now_ns) const;

 private:
  // The exported object, the same in all versions.
  struct Functions {
    const char* name;
    void* init;
    int (*start)(void* context, void** handle, void* descriptor);
    int (*stop)(void* handle);
    int (*record)(void* handle, EventState state, void* arguments);
    int (*finalize)(void* context);
  };
  static_assert(sizeof(Functions) == 48);

  void ApplyMask();  // mutex_ is held
  void Load();
  void* OpenLibrary() const;
  bool FindSymbol();
  void Unload();
  void Say(const std::string& message) const;

  const Release release_;
  const NcclLibrary nccl_;
  const std::optional<std::string> search_value_;
  std::mutex mutex_;  // of loading: NCCL does not hold it during init
  int communicators_ = 0;
  int plugin_mask_ = 0;  // as init left it
  std::optional<uint32_t> controlled_mask_;
  bool has_failed_ = false;  // remembered: NCCL does not try again
  void* library_ = nullptr;
  Functions functions_{};
  std::atomic<bool> is_loaded_ = false;
};

}  // namespace nccl_exporter::sim
