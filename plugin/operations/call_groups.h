// SPDX-License-Identifier: Apache-2.0
// Groups of API calls on one communicator, as sampling needs them: which are open, and what the sampler's count of
// changes was when the latest ended. The thread that calls NCCL writes, one at a time; any thread may read.
//
// A group is known by its number while it is open. One whose stop is lost is superseded by the next.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/operations/handle.h"
#include "plugin/sampling/sampler.h"
#include "plugin/segment/word.h"

namespace nccl_exporter {

class CallGroups {
 public:
  // Under the process's lock, while no event can carry the new context yet; nullptr: no sampling.
  void Open(Sampler* sampler) {
    StoreRelaxed(ended_, LoadRelaxed(opened_));
    if (sampler != nullptr) StoreRelaxed(changes_at_end_, sampler->changes());
    sampler_.store(sampler, std::memory_order_release);
  }
  Sampler* sampler() const { return sampler_.load(std::memory_order_relaxed); }

  // Returns the number of the group that begins.
  uint64_t Begin() {
    const uint64_t number = LoadRelaxed(opened_) + 1;
    StoreRelaxed(opened_, number);
    return number;
  }
  void NoteCallTime(uint64_t now_ns) { StoreRelaxed(last_call_ns_, now_ns); }
  // The group of that (abbreviated) number has ended. True if the sampler is due.
  bool End(const Sampler& sampler, uint64_t abbreviated) {
    NoteChanges(sampler);
    StoreRelease(ended_, abbreviated);
    return sampler.IsDue(LoadRelaxed(last_call_ns_));
  }
  void NoteChanges(const Sampler& sampler) { StoreRelaxed(changes_at_end_, sampler.changes()); }

  bool IsAnyOpen() const {
    const uint64_t ended = LoadAcquire(ended_);
    return ((LoadRelaxed(opened_) ^ ended) & Handle::kTicketMask) != 0;
  }
  // What the sampler's changes() were when the latest group ended, or at init.
  uint64_t changes_at_end() const { return LoadRelaxed(changes_at_end_); }

 private:
  Word opened_{0};  // the latest
  Word ended_{0};   // the latest, abbreviated as in handles
  Word last_call_ns_{0};
  Word changes_at_end_{0};
  std::atomic<Sampler*> sampler_{nullptr};
};

}  // namespace nccl_exporter
