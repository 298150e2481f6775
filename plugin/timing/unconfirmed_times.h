// SPDX-License-Identifier: Apache-2.0
// Times of operations that wait for proof, because NCCL's ring of time stamps may have been
// overrun. One thread at a time, under the lock of the communicator's completions.
//
// They are recorded once times of a later launch show that they are the operations' own
// (timestamp_check.h has the argument). They are dropped if later times show the contrary, if there
// is no room left, or at finalize. One ticket says which are believed:
//   1. Times are kept in the order of their launches. If those of a launch are its own, so are all
//      those before it that are in order (timestamp_check.h, 2); times that go back drop all that
//      is held. So the believed ones have a lower ticket than the launch that proved them.
//   2. Launches that ran in between and were not compared could hide a whole ring. Once as many of
//      their work items lie behind an entry as the ring has, the entry is dropped. The other items
//      of its own launch, whose times are judged as one, count as well.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/segment/recorder.h"
#include "plugin/timing/work_items.h"

namespace nccl_exporter::plugin {

// One per communicator.
class UnconfirmedTimes {
 public:
  // Twice the operations that a communicator follows at once: those that a host issued far ahead,
  // and those that it issued while the first of them ran.
  static constexpr uint64_t kCapacity = 2 * kOperationEntries;
  // Released at one completion: some 3 us of NCCL's progress thread.
  static constexpr uint64_t kReleaseSteps = 64;
  void Clear() { Zero(held_, believed_before_); }
  bool IsEmpty() const { return LoadRelaxed(held_) == 0; }

  // Keeps times of the latest launch back, after MakeRoom(). `uncompared`: work items before its
  // own whose times were not compared with others.
  void Keep(uint64_t launch, const Completion& completion, uint64_t uncompared) {
    const uint64_t place = PlaceOf(LoadRelaxed(held_));
    entries_[place] = {completion, launch, uncompared};
    ExclusiveAdd(held_, 1);
  }
  // If all is full, the oldest make room: returns how many are dropped for it.
  uint64_t MakeRoom(Recorder& recorder) {
    if (LoadRelaxed(held_) < kCapacity) return 0;
    if (IsBelieved(First())) return Release(recorder, 1);
    return Forget(), 1;
  }
  // Times of the launches before that one are their own, but for those that too much lies behind.
  void Believe(uint64_t launch, uint64_t uncompared) {
    if (launch <= LoadRelaxed(believed_before_)) return;
    StoreRelaxed(believed_before_, launch);
    StoreRelaxed(uncompared_, uncompared);
  }
  // Records what is believed, so many at most. Returns how many of them too much lay behind.
  uint64_t Release(Recorder& recorder, uint64_t most = kReleaseSteps) {
    uint64_t dropped = 0;
    for (; most > 0 && !IsEmpty() && IsBelieved(First()); --most, Forget()) {
      const bool is_hidden =
          LoadRelaxed(uncompared_) - First().uncompared >= WorkItems::kRingEntries;
      is_hidden ? ++dropped : (recorder.RecordTimes(First().completion), dropped);
    }
    return dropped;
  }
  // Drops what is not believed: returns how many these are.
  uint64_t Drop() {
    const uint64_t believed = CountBelieved();
    const uint64_t dropped = LoadRelaxed(held_) - believed;
    StoreRelaxed(held_, believed);
    return dropped;
  }

 private:
  struct Entry {
    Completion completion;
    uint64_t launch = 0;
    uint64_t uncompared = 0;
  };

  uint64_t PlaceOf(uint64_t number) const { return (LoadRelaxed(oldest_) + number) % kCapacity; }
  Entry& At(uint64_t number) { return entries_[PlaceOf(number)]; }
  Entry& First() { return At(0); }
  bool IsBelieved(const Entry& entry) const { return entry.launch < LoadRelaxed(believed_before_); }
  void Forget() {
    ExclusiveAdd(oldest_, 1);
    StoreRelaxed(held_, LoadRelaxed(held_) - 1);
  }
  // By halves: ten steps.
  uint64_t CountBelieved() {
    uint64_t least = 0;
    for (uint64_t most = LoadRelaxed(held_); least < most;) {
      const uint64_t middle = (least + most) / 2;
      IsBelieved(At(middle)) ? least = middle + 1 : most = middle;
    }
    return least;
  }

  AtomicU64 held_{0};
  AtomicU64 oldest_{0};           // place of the first
  AtomicU64 believed_before_{0};  // ticket of a launch
  AtomicU64 uncompared_{0};       // when that was found
  std::array<Entry, kCapacity> entries_{};
};

}  // namespace nccl_exporter::plugin
