// SPDX-License-Identifier: Apache-2.0
// Durations of the ledger, and one reading of the clocks. Plain data, for any thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "exporter/ledger/shipped_thresholds.h"

namespace nccl_exporter::exporter {

struct LedgerTimes {
  static constexpr int64_t kSecondNs = 1'000'000'000;

  // A collective and size is regular if it occurs at least so often: Thresholds::longest_step.
  int64_t longest_step_ns = std::chrono::nanoseconds(shipped::kLongestStep).count();
  // Weights of timed operations in a mean fall to 37 % in this time. It is short against the rules'
  // window of a minute.
  int64_t mean_ns = 10 * kSecondNs;
  // Large transfers of the ranks are compared over this time. Each snapshot of the history, 5 s
  // apart, ends an interval, and the scrapes between them do not.
  int64_t interval_ns = 4 * kSecondNs;
  // A communicator is quiet if nothing has started or completed on it for so long.
  int64_t quiet_ns = 5 * kSecondNs;
  // A process that is in no snapshot is remembered for so long: a file that a snapshot could not
  // read is in the next one.
  int64_t forget_ns = 60 * kSecondNs;

  LedgerTimes Scaled(double divisor) const {
    LedgerTimes scaled = *this;
    for (int64_t LedgerTimes::*const time : {&LedgerTimes::longest_step_ns, &LedgerTimes::mean_ns,
                                             &LedgerTimes::interval_ns, &LedgerTimes::quiet_ns})
      scaled.*time = static_cast<int64_t>(static_cast<double>(this->*time) / divisor);
    return scaled;
  }
};

struct Moment {
  int64_t monotonic_ns = 0;  // CLOCK_MONOTONIC
  int64_t realtime_ns = 0;
};

}  // namespace nccl_exporter::exporter
