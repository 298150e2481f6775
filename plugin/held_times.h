// SPDX-License-Identifier: Apache-2.0
// Times that may be those of other operations, because NCCL's ring of time stamps may have been overrun: kept back
// until times of a later launch show that they are their own (plausibility.h has the argument), and dropped if they
// show the contrary, if there is no room left, or if the communicator is finalized before.
//
// The argument needs every launch in between to have been compared. Launches that ran and were not compared could hide
// a whole ring: once as many of their work items lie behind an entry as the ring has, the entry is dropped.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/plausibility.h"
#include "plugin/recorder.h"
#include "plugin/work_items.h"

namespace nccl_exporter {

// One a communicator, under its turn of completions.
class HeldTimes {
 public:
  // Twice the operations that a communicator follows at once: those that a host issued far ahead, and those that it
  // issued while the first of them ran.
  static constexpr uint64_t kCapacity = 2 * kOperationEntries;
  // Released at one completion: some 3 us of NCCL's progress thread.
  static constexpr uint64_t kReleaseSteps = 64;

  void Clear() {
    StoreRelaxed(held_, 0);
    StoreRelaxed(believed_, 0);
  }
  bool IsEmpty() const { return LoadRelaxed(held_) == 0; }

  // Keeps times back. `uncompared`: work items so far whose times were not compared with others. Returns how many were
  // dropped for want of room.
  uint64_t Keep(const Completion& completion, uint64_t uncompared, Recorder& recorder) {
    uint64_t dropped = 0;
    if (LoadRelaxed(held_) == kCapacity) {
      dropped = LoadRelaxed(believed_) == 0 && !First().is_dropped ? 1 : 0;
      LoadRelaxed(believed_) == 0 ? Forget() : Release(recorder, 1);
    }
    Entry& entry = At(LoadRelaxed(held_));
    entry.completion = completion;
    entry.uncompared = uncompared;
    entry.is_dropped = false;
    AddAlone(held_, 1);
    return dropped;
  }
  // All that are held are their own, but for those that too much lies behind: returns how many these are.
  uint64_t Believe(uint64_t uncompared) { return BelieveFirst(LoadRelaxed(held_), uncompared); }
  // The same, of all that were held before the launches of a row of that many (Verdict::patient_launches), which ends
  // with the launch whose times come next.
  uint64_t BelieveBeforeRow(uint64_t patient_launches, uint64_t uncompared) {
    constexpr uint64_t kRow = Plausibility::kPatientLaunches;
    StoreRelaxed(row_[patient_launches % kRow], LoadRelaxed(oldest_) + LoadRelaxed(held_));
    if (patient_launches < kRow) return 0;
    const uint64_t end = LoadRelaxed(row_[(patient_launches + 1) % kRow]);  // when the first of the row came
    return end > LoadRelaxed(oldest_) ? BelieveFirst(end - LoadRelaxed(oldest_), uncompared) : 0;
  }
  // Records those that are believed, so many at most.
  void Release(Recorder& recorder, uint64_t most = kReleaseSteps) {
    for (; most > 0 && LoadRelaxed(believed_) > 0; --most) {
      if (!First().is_dropped) recorder.RecordTimes(First().completion);
      StoreRelaxed(believed_, LoadRelaxed(believed_) - 1);
      Forget();
    }
  }
  // Drops those that are not believed: returns how many these are.
  uint64_t Drop() {
    const uint64_t dropped = LoadRelaxed(held_) - LoadRelaxed(believed_);
    StoreRelaxed(held_, LoadRelaxed(believed_));
    return dropped;
  }

 private:
  uint64_t BelieveFirst(uint64_t count, uint64_t uncompared) {
    if (count <= LoadRelaxed(believed_)) return 0;
    uint64_t dropped = 0;
    for (uint64_t i = LoadRelaxed(believed_); i < count; ++i, ++dropped) {
      if (uncompared - At(i).uncompared < WorkItems::kRingEntries) break;
      At(i).is_dropped = true;
    }
    StoreRelaxed(believed_, count);
    return dropped;
  }

  struct Entry {
    Completion completion;
    uint64_t uncompared = 0;
    bool is_dropped = false;
  };
  Entry& At(uint64_t number) { return entries_[(LoadRelaxed(oldest_) + number) % kCapacity]; }
  Entry& First() { return At(0); }
  void Forget() {
    AddAlone(oldest_, 1);
    StoreRelaxed(held_, LoadRelaxed(held_) - 1);
  }

  Word held_{0};
  Word believed_{0};                                        // of these, from the oldest on
  Word oldest_{0};                                          // how many are held no more
  std::array<Word, Plausibility::kPatientLaunches> row_{};  // how many had been held when each of the row came
  std::array<Entry, kCapacity> entries_{};
};

}  // namespace nccl_exporter
