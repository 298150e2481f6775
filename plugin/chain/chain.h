// SPDX-License-Identifier: Apache-2.0
// The plugin that is chained to this one (NCCL_EXPORTER_CHAIN): its functions, its event mask, and
// what its callbacks cost. Any thread, once it is open.
//
// Nothing can confine it: what it corrupts, blocks or ends is the job's. Its errors and null
// handles are survived. Every 64th of its callbacks is timed; above the budget it gets no further
// starts.
#pragma once

#include <pthread.h>

#include "plugin/chain/pair_pool.h"
#include "plugin/nccl/announced_events.h"
#include "plugin/nccl/event_policy.h"
#include "plugin/nccl/nccl_caller.h"
#include "plugin/nccl/profiler_abi.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

// Name in this plugin's own objects.
inline constexpr char kPluginName[] = "nccl-exporter";

// An exported object, of whatever version.
struct ChainedTable {
  const char* name;
  void* init;
  abi::Result (*start)(void* context, void** handle, void* descriptor);
  abi::Result (*stop)(void* handle);
  abi::Result (*record)(void* handle, int state, void* arguments);
  abi::Result (*finalize)(void* context);
};

// All zeros is its first state, as in a forked child: not open.
class Chain {
 public:
  // The library that NCCL_EXPORTER_CHAIN named when this one was loaded; nullptr: none.
  static inline const char* library = nullptr;
  // The chain of the process, if it is open; else nullptr.
  static Chain* Get() {
    Chain* const chain = LoadAcquire(instance_);
    return chain != nullptr && chain->pool() != nullptr ? chain : nullptr;
  }

  // Opens `library`, which is never closed; under the process's lock. Returns why it is not open,
  // or nullptr. `salt` of its handles; `block` of the segment, or nullptr.
  const char* Open(int api_version, uint16_t salt, uint64_t budget_ppm, layout::ChainBlock* block);
  PairPool* pool() const { return LoadAcquire(pool_); }
  const char* name() const { return words_->name; }
  int pid() const { return pid_; }
  // Version of the API in which an NCCL of that version calls it; 0: not at all.
  int VersionFor(int api_version) const { return versions_[static_cast<size_t>(api_version)]; }
  // The mask that it asks for, which it may change at any time.
  const int* wish() const { return &wish_; }

  // Calls its init. False if it gets no events of the communicator.
  bool Init(const InitRequest& request, void** context);
  // Bits that NCCL is to have for it. Its kernel events are refused where this plugin's `policy`
  // has none.
  int Grant(const InitRequest& request, const EventPolicy& policy);
  // The context that stands for both.
  void* Join(void* ours, void* theirs, abi::Logger logger) {
    return pool()->Take(PairRing::kContexts, ours, theirs, reinterpret_cast<uintptr_t>(logger));
  }
  void Finalize(int api_version, const Pair& context);

  // Whether NCCL would have announced an event to the plugin alone.
  template <int kVersion>
  bool Passes(uint64_t type) const {
    const int version = VersionFor(kVersion);
    if (version == 0) return false;
    const int mask = __atomic_load_n(&wish_, __ATOMIC_RELAXED) & LoadRelaxed(granted_);
    const uint64_t known = KnownEvents(version);  // NCCL takes no other bits of its mask
    return (type & known) != 0 &&
           IsAnnounced<kVersion>(type, static_cast<uint64_t>(mask) & known) &&
           LoadRelaxed(budget_) == Budget::kKept;
  }
  template <int kVersion, auto kFunction, typename... Arguments>
  void Call(PairRing ring, Arguments... arguments) {
    const auto function = tables_[kVersion].*kFunction;
    AtomicU64& calls = calls_[static_cast<uint8_t>(ring)].number;
    ExclusiveAdd(calls, 1);  // two threads may count one
    // One of 64, in an order that no rhythm of events has.
    if (LoadRelaxed(calls) * 0x9e3779b97f4a7c15 >> 58 != 0) return void(function(arguments...));
    const uint64_t begin_ns = NowNs();
    function(arguments...);
    Charge(begin_ns, NowNs());
  }

 private:
  enum class Budget : uint8_t { kKept, kExceeded, kReported };
  static constexpr size_t kVersions = 8;

  const char* FindTables(void* library);
  [[gnu::cold]] void Charge(uint64_t begin_ns, uint64_t end_ns);
  void ReportBudget(abi::Logger logger);  // callbacks leave the log alone
  // Sets a flag of the segment; true for the first.
  bool Note(layout::ChainFlag flag) {
    return (words_->flags.fetch_or(flag, std::memory_order_relaxed) & flag) == 0;
  }

  struct alignas(64) Calls {
    AtomicU64 number;
  };

  static inline std::atomic<Chain*> instance_;

  std::atomic<PairPool*> pool_;  // stored last
  int pid_;
  std::array<ChainedTable, kVersions> tables_;  // by the version that NCCL calls
  std::array<int, kVersions> versions_;         // of each
  int wish_;
  std::atomic<int> granted_;  // bits of it that are heeded
  pthread_mutex_t init_lock_;
  layout::ChainBlock* words_;
  layout::ChainBlock own_words_;  // where there is no segment
  std::array<Calls, kPairRings> calls_;
  std::atomic<Budget> budget_;
  uint64_t budget_ppm_;
  // Samples since the budget was last looked at; by the thread that has the lock.
  std::atomic<bool> is_charging_;
  uint64_t window_begin_ns_, window_ns_, window_longest_ns_, window_samples_;
};

}  // namespace nccl_exporter::plugin
