// SPDX-License-Identifier: Apache-2.0
// Times that may be those of other operations, because NCCL's ring of time stamps may have been overrun: kept back
// until those of later operations agree with them. The entries of an overrun ring that were read before it wrapped show
// later times than the ones read after, so the contradiction comes within a ring of reading on.
#pragma once

#include <array>
#include <cstdint>

#include "plugin/recorder.h"

namespace nccl_exporter {

// One a communicator, under its turn of completions.
class HeldTimes {
 public:
  // Twice NCCL's ring: operations do not all use the same channels.
  static constexpr uint64_t kCapacity = 128;

  bool IsEmpty() const { return LoadRelaxed(held_) == 0; }

  // Keeps them back; what has been for longest is recorded when it is full.
  void Keep(const Completion& completion, Recorder& recorder) {
    if (LoadRelaxed(held_) == kCapacity) Release(recorder, 1);
    At(LoadRelaxed(released_) + LoadRelaxed(held_)) = completion;
    AddAlone(held_, 1);
  }
  // All are believed.
  void Release(Recorder& recorder) { Release(recorder, LoadRelaxed(held_)); }
  // None is. Returns how many there were.
  uint64_t Drop() { return held_.exchange(0, std::memory_order_relaxed); }

 private:
  Completion& At(uint64_t number) { return completions_[number % kCapacity]; }
  void Release(Recorder& recorder, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) recorder.RecordTimes(At(LoadRelaxed(released_) + i));
    AddAlone(released_, count);
    StoreRelaxed(held_, LoadRelaxed(held_) - count);
  }

  Word held_{0};
  Word released_{0};
  std::array<Completion, kCapacity> completions_{};
};

}  // namespace nccl_exporter
