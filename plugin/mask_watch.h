// SPDX-License-Identifier: Apache-2.0
// Watch over the event masks of communicators, one of each copy of libnccl, against a change by
// another program: NCCL's RAS client can, from 2.31 on. Any thread may look; masks are watched
// under the process's lock.
//
// A mask belongs to a copy of libnccl that may be unloaded after its last communicator was
// finalized. The watch ends at finalize, and no callback of a communicator comes after it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/operations/handle.h"
#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// All zeros is its first state: nothing is watched.
class MaskWatch {
 public:
  // Under the lock. The communicator's copy of libnccl has `stored` in its mask.
  void Begin(uint32_t slot, const int* mask, int stored) {
    StoreRelaxed(masks_[slot].stored, stored);
    StoreRelaxed(masks_[slot].mask, mask);
  }
  void End(uint32_t slot) { StoreRelaxed(masks_[slot].mask, nullptr); }
  bool IsWatched(uint32_t slot, const int* mask) const {
    return LoadRelaxed(masks_[slot].mask) == mask;
  }

  // The communicator's mask, if another program has changed it; else nullptr.
  const int* Overridden(uint32_t slot) const {
    const int* const mask = LoadRelaxed(masks_[slot].mask);
    if (mask == nullptr) return nullptr;
    const int present = __atomic_load_n(mask, __ATOMIC_RELAXED) & ~kNetworkBit;
    const bool is_own = present == LoadRelaxed(masks_[slot].stored);
    return is_own ? nullptr : mask;
  }
  // Under the lock, at an init of the copy that `mask` belongs to: whether one of its communicators
  // sees a change.
  bool IsOverridden(const int* mask, uint32_t slots) const {
    if (mask == nullptr) return false;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      if (Overridden(slot) == mask) return true;
    }
    return false;
  }

 private:
  // ProxyStep, which the plugin itself changes while the job runs (network_windows.h).
  static constexpr int kNetworkBit = 16;

  struct Watched {
    std::atomic<const int*> mask;  // nullptr: not watched
    std::atomic<int> stored;
  };
  std::array<Watched, Handle::kMaxSlots> masks_;  // by slot
};

}  // namespace nccl_exporter::plugin
