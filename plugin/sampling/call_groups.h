// SPDX-License-Identifier: Apache-2.0
// Groups of API calls on one communicator, as sampling needs them: which are open, and what the
// sampler's count of changes was when the latest one ended. The thread that calls NCCL writes, one
// at a time; any thread may read.
//
// A group is known by its number while it is open. One whose stop is lost is superseded by the
// next.
//
// A number is stored in `begun_` before it is stored in `ended_`, with release. IsAnyOpen acquires
// `ended_` first: `begun_` is then not older, so a group that began before the look is seen as open
// unless it has ended. A group that begins in that moment may not be seen: sampler.h, 6 allows it,
// for NCCL has loaded the mask before it shows a group, and no order of ours comes before that.
// What was noted before a group's end is read by the thread of the communicator's next call, which
// the user orders.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/sampling/sampler.h"
#include "plugin/segment/atomics.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

class CallGroups {
 public:
  // Bits of a group's number that come back with its end: as many as a handle has.
  static constexpr uint64_t kNumberMask = (uint64_t{1} << 26) - 1;

  Sampler* sampler() const { return sampler_.load(std::memory_order_relaxed); }

  // Returns the number of the group that begins.
  uint64_t Begin() {
    const uint64_t number = LoadRelaxed(begun_) + 1;
    StoreRelaxed(begun_, number);
    return number;
  }
  void NoteCallTime(uint64_t now_ns) { StoreRelaxed(last_call_ns_, now_ns); }
  // The group of that number has ended. True if the sampler is due.
  bool End(const Sampler& sampler, uint64_t abbreviated) {
    NoteChanges(sampler);
    StoreRelease(ended_, abbreviated);
    return sampler.IsDue(LoadRelaxed(last_call_ns_));
  }
  void NoteChanges(const Sampler& sampler) { StoreRelaxed(changes_at_end_, sampler.changes()); }

  bool IsAnyOpen() const {
    const uint64_t ended = LoadAcquire(ended_);
    return ((LoadRelaxed(begun_) ^ ended) & kNumberMask) != 0;
  }
  // What the sampler's changes() were when the latest group ended, or at init.
  uint64_t changes_at_end() const { return LoadRelaxed(changes_at_end_); }

 private:
  friend class SamplerSet;  // opens and closes them, and keeps them in a list

  void Open(Sampler* sampler) {
    StoreRelaxed(ended_, LoadRelaxed(begun_));
    if (sampler != nullptr) StoreRelaxed(changes_at_end_, sampler->changes());
    is_live_.store(true, std::memory_order_relaxed);
    sampler_.store(sampler, std::memory_order_release);
  }
  bool AreSampledBy(const Sampler& sampler) const {
    return sampler_.load(std::memory_order_acquire) == &sampler &&
           is_live_.load(std::memory_order_relaxed);
  }

  AtomicU64 begun_{0};  // number of the latest
  AtomicU64 ended_{0};  // the latest, abbreviated
  AtomicU64 last_call_ns_{0};
  AtomicU64 changes_at_end_{0};
  std::atomic<Sampler*> sampler_{nullptr};
  std::atomic<bool> is_live_{false};  // from init to finalize
  // For good, from the first init on.
  layout::CommunicatorSlot* slot_ = nullptr;  // where their communicator's sampling is shown
  CallGroups* next_ = nullptr;                // in the list of the sampler set
};

}  // namespace nccl_exporter::plugin
