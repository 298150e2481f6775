// SPDX-License-Identifier: Apache-2.0
// Whether the GPU times of a launch can be believed. NCCL's counters may drift from the device's, and its rings may be
// overrun; then launches carry the times of other ones, in perfect order. What is found out here:
//
//   stop before start      the launch took no time at all
//   longer than CPU time   the GPU was busy for longer than the CPU waited from the call to the delivery of the last
//   stop clock mismatch         each launch bounds the distance of the two clocks (call <= start, stop <= delivery);
//   bounds of two launches
//                          that contradict each other mean that one of them has the times of another
//   overlap                a launch began before an earlier one of the same communicator had ended; equal times
//   included ring overrun           the host was many launches ahead, and the GPU's pause before this launch would have
//   held dozens of them
//
// The second and third mean drift, which is permanent: the communicator is untimed from then on. The others concern
// launches near by.
#pragma once

#include <cstdint>
#include <optional>

#include "plugin/word.h"
#include "proto/data_quality.h"

namespace nccl_exporter {

// Of one launch: GPU clock, and CLOCK_MONOTONIC.
struct LaunchTimes {
  uint64_t order = 0;  // ticket: launches of a communicator run in the order of their tickets
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;
  uint64_t call_ns = 0;  // latest call of the launch; 0: not known
  uint64_t delivered_ns = 0;
  uint64_t called_after = 0;  // operations that have been called since
};

// One a communicator. One launch at a time, in whatever thread.
class Plausibility {
 public:
  // Entries of NCCL's ring of time stamps for each channel.
  static constexpr uint64_t kRingEntries = 64;

  // Nothing if the times are plausible.
  std::optional<Loss> Judge(const LaunchTimes& launch);
  void Reset();

 private:
  std::optional<Loss> JudgeClocks(const LaunchTimes& launch);
  std::optional<Loss> JudgeOrder(const LaunchTimes& launch);

  // GPU clock + distance = CPU clock: the distance lies between these, as known at bounds_ns_; they widen with time.
  Word least_distance_{0};  // two's complement
  Word most_distance_{0};
  Word bounds_ns_{0};  // CLOCK_MONOTONIC; 0: no bounds yet
  // The latest launch that was believed, and the usual distance from one start to the next.
  Word last_order_{0};
  Word last_start_ns_{0};
  Word last_stop_ns_{0};
  Word usual_period_ns_{0};
  Word suspect_until_{0};  // order: behind an overrun the next ring of launches is wrong as well
};

}  // namespace nccl_exporter
