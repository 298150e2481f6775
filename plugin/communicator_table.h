// SPDX-License-Identifier: Apache-2.0
// Table of the process's communicators by slot, and the check of every context and handle that NCCL
// hands back. Any thread may look up; slots are claimed, opened and closed under the process's
// lock.
//
// Why a lookup is safe at any time, whatever bits it is given:
//   1. The memory of a communicator is stored in communicators_ with release, and never given back.
//      A later communicator of the slot uses it again.
//   2. OpenSlot() stores the bits of the new context in contexts_ with release, after the
//      communicator was opened. CloseSlot() stores 0 there before it is finalized.
//   3. Find() loads contexts_ with acquire and compares all 64 bits, a generation among them. If
//      they are equal, 2 and 1 have happened before: the communicator is there, and open.
//   4. OwnerOf() is given a handle whose salt and kind were compared. It loads communicators_ with
//      acquire: nullptr, or memory that stays. The ticket decides whether the handle's operation is
//      still there (operation.h).
//   5. In a forked child all is zero: no context is equal, since 0 is refused, and no communicator
//      is found by 4.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/operations/communicator.h"
#include "plugin/operations/handle.h"
#include "plugin/segment/atomics.h"
#include "plugin/segment/segment.h"

namespace nccl_exporter::plugin {

// All zeros is its first state, as in a forked child.
class CommunicatorTable {
 public:
  // Under the lock, like all that init and finalize do.

  // Slots of the segment; the last one is shared by all communicators that have none.
  void Open(uint32_t slot_count) { slot_count_ = slot_count; }
  void StoreSalt(uint16_t salt) { StoreRelease(salt_, salt); }
  // A place for a new communicator, in this order: closed for the retention time; never used; the
  // one closed longest ago, since a live communicator is worth more than the counts of a finalized
  // one. The overflow slot if there is none; *why is then set.
  uint32_t Claim(Segment& segment, uint64_t retention_ns, Loss* why);
  // Reserves memory of the slot, in the segment and of the process. False if there is none.
  bool Prepare(Segment& segment, uint32_t slot);
  uint64_t NextGeneration(uint32_t slot) const { return LoadRelaxed(generations_[slot]) + 1; }
  // The slot's communicator has been opened: callbacks find it by the context that is returned.
  Handle OpenSlot(uint32_t slot);
  void CloseSlot(uint32_t slot) { StoreRelease(contexts_[slot], 0); }
  // It has been finalized: its slot may be claimed again. Returns its generation.
  uint64_t NoteFinalized(uint32_t slot, uint64_t now_ns) {
    closed_ns_[slot] = now_ns;
    return LoadRelaxed(generations_[slot]);
  }

  // Any thread.

  uint16_t Salt() const { return LoadAcquire(salt_); }
  uint32_t overflow_slot() const { return slot_count_ - 1; }
  bool IsOverflow(uint32_t slot) const { return slot == overflow_slot(); }

  Communicator* Find(Handle context) const {
    const uint32_t slot = context.Slot();
    if (context.bits == 0 || LoadAcquire(contexts_[slot]) != context.bits)
      return FindOverflow(context);
    return LoadRelaxed(communicators_[slot]);
  }
  Communicator* OwnerOf(Handle handle) const { return InSlot(handle.Slot()); }
  // Owner of any bits; nullptr as well if they are not a handle of this kind.
  Communicator* Owner(Handle handle, HandleKind kind) const {
    return Fits(handle, kind) ? OwnerOf(handle) : nullptr;
  }
  Communicator* InSlot(uint32_t slot) const { return LoadAcquire(communicators_[slot]); }

  // The kind of a handle of ours; none of the kinds if it is not ours. In a forked child a stray
  // pointer may have a kind, and no communicator is found behind it (5).
  HandleKind KindOf(Handle handle) const {
    const uint64_t kind = handle.bits >> 44 ^ uint64_t { Salt() } << 4;
    return kind < 16 ? static_cast<HandleKind>(kind) : HandleKind::kInvalid;
  }
  // Whether it is a handle of ours of this kind: one comparison. In a forked child as KindOf.
  bool Fits(Handle handle, HandleKind kind) const {
    return handle.bits >> 44 == (uint64_t{Salt()} << 4 | static_cast<uint64_t>(kind));
  }
  // The context of an overflow slot carries the number of ranks, which the shared slot cannot.
  uint32_t RanksOf(Handle context, Communicator& communicator) const {
    return IsOverflow(context.Slot()) ? static_cast<uint32_t>(context.Ticket())
                                      : communicator.recorder().ranks();
  }
  // Visits the communicators that live and have a slot of their own.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (uint32_t slot = 0; slot < overflow_slot(); ++slot) {
      if (LoadAcquire(contexts_[slot]) != 0) visit(*InSlot(slot));
    }
  }

 private:
  uint32_t FirstUnused() const;
  uint32_t LongestClosed() const;
  // The shared slot has no context of its own; every other context is gone, or foreign.
  [[gnu::noinline]] Communicator* FindOverflow(Handle context) const;

  // 0 until all else is ready, and in a forked child.
  std::atomic<uint16_t> salt_;
  uint32_t slot_count_;
  // Handle of the live communicator in each slot; 0: none.
  std::array<AtomicU64, Handle::kMaxSlots> contexts_;
  std::array<AtomicU64, Handle::kMaxSlots> generations_;  // of each slot so far
  // CLOCK_MONOTONIC of the last finalize; under the lock.
  std::array<uint64_t, Handle::kMaxSlots> closed_ns_;
  std::array<std::atomic<Communicator*>, Handle::kMaxSlots> communicators_;
};

}  // namespace nccl_exporter::plugin
