// SPDX-License-Identifier: Apache-2.0
// OperationTimes, counts of one function and size class of a communicator at the latest snapshot
// and at the ends of periods and intervals, and the mean of its recent timed operations. For one
// thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"

namespace nccl_exporter::exporter {

class OperationTimes {
 public:
  // Begins the memory of a communicator whose past is not known: only what comes now is counted.
  // The mean of all timed operations so far weighs as one operation.
  void Begin(const collector::SizeClassSnapshot& counts) {
    seen_ = counts;
    at_period_ = {counts.operations, counts.operations};
    EndInterval();
    if (counts.timed_operations == 0) return;
    recent_timed_ = 1;
    recent_busy_ns_ =
        static_cast<double>(counts.busy_ns) / static_cast<double>(counts.timed_operations);
    mean_ns_ = recent_busy_ns_;
  }

  // `decay` multiplies the weights of earlier operations. Returns the operations since the latest
  // snapshot. Counts that decrease, as only a damaged segment has, count as unchanged.
  uint64_t See(const collector::SizeClassSnapshot& counts, double decay) {
    const uint64_t more = Increase(counts.operations, seen_.operations);
    const uint64_t timed = Increase(counts.timed_operations, seen_.timed_operations);
    recent_timed_ *= decay;
    recent_busy_ns_ *= decay;
    if (timed != 0) {
      recent_timed_ += static_cast<double>(timed);
      recent_busy_ns_ += static_cast<double>(Increase(counts.busy_ns, seen_.busy_ns));
      mean_ns_ = recent_busy_ns_ / recent_timed_;
    }
    seen_ = counts;
    return more;
  }

  const collector::SizeClassSnapshot& seen() const { return seen_; }
  double mean_ns() const { return mean_ns_; }  // 0: none was timed

  // Operations in the period that ends now, and in the one before.
  uint64_t InThisPeriod() const { return Increase(seen_.operations, at_period_[1]); }
  uint64_t InLastPeriod() const { return Increase(at_period_[1], at_period_[0]); }
  uint64_t InBothPeriods() const { return Increase(seen_.operations, at_period_[0]); }
  void EndPeriod() { at_period_ = {at_period_[1], seen_.operations}; }

  // Timed operations since the end of the interval before.
  collector::SizeClassSnapshot InThisInterval() const {
    return {.timed_operations = Increase(seen_.timed_operations, at_interval_.timed_operations),
            .timed_bytes = Increase(seen_.timed_bytes, at_interval_.timed_bytes),
            .busy_ns = Increase(seen_.busy_ns, at_interval_.busy_ns)};
  }
  void EndInterval() { at_interval_ = seen_; }
  bool is_regular() const { return is_regular_; }
  void SetRegular(bool is_regular) { is_regular_ = is_regular; }

 private:
  static uint64_t Increase(uint64_t now, uint64_t before) { return now - std::min(now, before); }

  collector::SizeClassSnapshot seen_;
  double recent_timed_ = 0;
  double recent_busy_ns_ = 0;
  double mean_ns_ = 0;
  std::array<uint64_t, 2> at_period_{};
  collector::SizeClassSnapshot at_interval_;
  bool is_regular_ = false;
};

using TimesByOperation = std::map<OperationKind, OperationTimes>;

}  // namespace nccl_exporter::exporter
