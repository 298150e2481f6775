// SPDX-License-Identifier: Apache-2.0
// Handles that stand for two: ours, and that of the chained plugin. Any thread.
//
// Bits: 63-48 salt, 47-46 ring, 45-1 number, 0 one. NCCL names handles after their stop, as
// parents, so nothing frees a pair: those of a ring are used again one after the other.
//   1. Take() draws a number, and claims its pair by a compare-exchange of its word: one thread
//      writes a pair. It passes over up to kLookAhead pairs that are live: NCCL never stops some.
//   2. The handle is stored last. Find() loads it before and after it reads the pair. All loads
//      acquire, all stores release: what it returns belongs to the handle.
//   3. No memory is reached through a handle, whatever its bits: they are compared whole.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/segment/atomics.h"

namespace nccl_exporter::plugin {

// Contexts; captured calls, which last; calls, launches and tasks; their parts.
enum class PairRing : uint8_t { kContexts, kCaptured, kTasks, kParts };
inline constexpr size_t kPairRings = 4;

struct Pair {
  void* handle = nullptr;  // as NCCL has it
  void* ours = nullptr;
  void* theirs = nullptr;
  uint64_t note = 0;
  bool is_live = false;  // there, and not stopped
};

// All zeros is its first state. 4 MiB.
class PairPool {
 public:
  static constexpr uint64_t kPairs = 1 << 15;  // that a ring remembers

  // Before the first Take(). Not 0, and not that of our own handles.
  void Open(uint16_t salt) { StoreRelease(salt_, salt); }
  void* Take(PairRing ring, void* ours, void* theirs, uint64_t note = 0) {
    const uint64_t index = static_cast<uint8_t>(ring);
    for (int attempt = 0;; ++attempt) {
      const uint64_t number = AddRelaxed(rings_[index].next, 1) << 1 & kNumberMask;
      const uint64_t handle = LoadRelaxed(salt_) << 48 | index << kRingShift | number | kLive;
      Entry& entry = const_cast<Entry&>(EntryOf(handle));
      const uint64_t former = LoadRelaxed(entry.word);
      if (former == kBusy || ((former & kLive) != 0 && attempt < kLookAhead)) continue;
      if (!CompareExchange(entry.word, former, kBusy)) continue;
      StoreRelease(entry.ours, reinterpret_cast<uintptr_t>(ours));
      StoreRelease(entry.theirs, reinterpret_cast<uintptr_t>(theirs));
      StoreRelease(entry.note, note);
      StoreRelease(entry.word, handle);
      return reinterpret_cast<void*>(handle);
    }
  }
  static PairRing RingOf(const void* pointer) {
    return static_cast<PairRing>(reinterpret_cast<uintptr_t>(pointer) >> kRingShift & 3);
  }
  // Bits of no pair are a handle of ours alone, and so is a context among events.
  Pair FindContext(void* pointer) const {
    return Find(pointer, RingOf(pointer) == PairRing::kContexts);
  }
  Pair FindEvent(void* pointer) const {
    return Find(pointer, RingOf(pointer) != PairRing::kContexts);
  }
  // Its pair may be used again. Any bits.
  void Drop(void* pointer) {
    const auto handle = reinterpret_cast<uintptr_t>(pointer);
    if (handle >> 48 == LoadRelaxed(salt_) && (handle & kLive) != 0)
      CompareExchange(const_cast<Entry&>(EntryOf(handle)).word, handle, handle & ~kLive);
  }

 private:
  static constexpr uint64_t kLive = 1, kBusy = 2;
  static constexpr int kRingShift = 46, kLookAhead = 8;
  static constexpr uint64_t kNumberMask = (uint64_t{1} << kRingShift) - 2;

  struct alignas(32) Entry {
    AtomicU64 word;  // the handle, without kLive once it is stopped; kBusy; 0: never used
    AtomicU64 ours, theirs, note;
  };
  struct alignas(64) Ring {
    AtomicU64 next;
    std::array<Entry, kPairs> entries;
  };

  Pair Find(void* pointer, bool may_be_there) const {
    const auto handle = reinterpret_cast<uintptr_t>(pointer);
    const Pair alone{.handle = pointer, .ours = pointer};
    if (!may_be_there || handle >> 48 != LoadRelaxed(salt_)) return alone;
    const Entry& entry = EntryOf(handle);
    const uint64_t word = LoadAcquire(entry.word);
    const Pair pair{pointer, reinterpret_cast<void*>(LoadAcquire(entry.ours)),
                    reinterpret_cast<void*>(LoadAcquire(entry.theirs)), LoadAcquire(entry.note),
                    word == handle};
    const bool is_there = (word | kLive) == handle && (LoadRelaxed(entry.word) | kLive) == handle;
    return is_there ? pair : alone;
  }
  const Entry& EntryOf(uint64_t handle) const {
    return rings_[handle >> kRingShift & 3].entries[(handle & kNumberMask) >> 1 & (kPairs - 1)];
  }

  AtomicU64 salt_;
  std::array<Ring, kPairRings> rings_;
};

}  // namespace nccl_exporter::plugin
