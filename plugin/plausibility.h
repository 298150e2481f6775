// SPDX-License-Identifier: Apache-2.0
// Whether the GPU times of a launch can be believed. NCCL's counters may drift from the device's, and its rings of time
// stamps may be overrun when its progress thread is late; then launches carry the times of other ones, in perfect
// order.
//
// A launch is believed if it keeps to all of these:
//
// - It took time, on each channel. (stop_before_start)
// - It took no longer than the CPU waited, from its call to the delivery of its last stop. (longer_than_cpu_time)
// - The distance of the two clocks, which every launch bounds (call <= start, stop <= delivery), lies within the bounds
//   that earlier launches gave. (clock_mismatch)
// - It began after the launches before it had ended, for the kernels of a communicator run one after the other.
//   (overlap)
// - All channels of an operation that is alone in its launch ran at the same time at some moment. (disjoint_channels)
//
// The second, third and fourth are proof of drift, which is permanent: the communicator is untimed from then on. The
// last is not, for the blocks of a kernel may wait for a processor each for itself.
//
// A channel's ring has 64 entries. If so many operations were announced behind a launch before its times were read,
// these may be those of any operation that was announced by then. A host may well be far ahead of its GPU, so such
// times are not refused: they are held back until later ones agree with them (held_times.h). An overlap or disjoint
// channels show the overrun; then what is held back is dropped, and all that was announced by then is refused. As long
// as such launches are about, an overlap is no proof of drift.
//
// What is not told: an overrun of a thread that is always late by the same number of rings; and the first launches of a
// host that counts more than its device, if all their channels show the time of one and the same later launch. The
// known causes of drift are told before they have an effect: drift_cause.h.
#pragma once

#include <cstdint>
#include <optional>

#include "plugin/word.h"
#include "proto/data_quality.h"

namespace nccl_exporter {

// Of one launch: GPU clock, and CLOCK_MONOTONIC. Tickets are those of operations, which are announced, and run, in
// their order.
struct LaunchTimes {
  uint64_t first_ticket = 0;  // of its operations
  uint64_t last_ticket = 0;
  uint64_t newest_ticket = 0;  // announced by now
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
  uint64_t call_ns = 0;  // the launch was not made before; 0: not known
  uint64_t delivered_ns = 0;
  uint64_t earlier_ns = 0;  // earlier operations that are not over ran until then at least; 0: there are none
  bool has_disjoint_channels = false;
};

// One a communicator. One launch at a time, in whatever thread.
class Plausibility {
 public:
  // Entries of NCCL's ring of time stamps for each channel.
  static constexpr uint64_t kRingEntries = 64;
  // So many operations behind a launch may overrun its entries: fewer than the ring holds, for a launch can run before
  // its operations are announced.
  static constexpr uint64_t kOverrunOperations = kRingEntries * 3 / 4;

  // Nothing if the times are plausible.
  std::optional<Loss> Judge(const LaunchTimes& launch);
  // Whether these times, though plausible, may be those of a later launch.
  static bool MayBeOverrun(const LaunchTimes& launch) {
    return launch.newest_ticket - launch.first_ticket >= kOverrunOperations;
  }
  // Whether this verdict proves drift.
  static constexpr bool IsDrift(Loss verdict) {
    return verdict == Loss::kLongerThanCpuTime || verdict == Loss::kClockMismatch || verdict == Loss::kOverlap;
  }
  void Reset();

 private:
  std::optional<Loss> JudgeClocks(const LaunchTimes& launch);
  std::optional<Loss> JudgeOrder(const LaunchTimes& launch);
  bool Overlaps(const LaunchTimes& launch, bool is_late) const;

  // GPU clock + distance = CPU clock: the distance lies between these, as known at bounds_ns_; they widen with time.
  Word least_distance_{0};  // two's complement
  Word most_distance_{0};
  Word bounds_ns_{0};  // CLOCK_MONOTONIC; 0: no bounds yet
  // The latest launch.
  Word last_ticket_{0};
  Word last_start_ns_{0};
  Word last_stop_ns_{0};
  Word overrun_is_possible_until_{0};  // ticket
  Word refused_until_{0};              // ticket
};

}  // namespace nccl_exporter
