// SPDX-License-Identifier: Apache-2.0
// CommunicatorCounters, the derived counters of one communicator (collector::DerivedCounts) and
// what they need from one snapshot to the next. For one thread at a time.
//
// Kernel seconds are the measured durations, plus an estimate of the untimed operations:
//   1. Each increment of the untimed operations of a function and size class is multiplied by the
//      mean of its recent timed operations. The totals' mean would do only for what was before the
//      first snapshot: it is slow to follow a change, and a sum of products with it can decrease.
//   2. Operations in flight count as untimed until they are timed. Then the estimate decreases
//      again. A sum that would decrease stays until it has grown past its highest value.
//   3. A communicator is exact while nothing says that any operation stays untimed: no loss in its
//      process, kernel times, and no operation of unknown state. Then
//      there is no estimate: the counter is the sum in the segment, whatever is in flight, and a
//      daemon that knows nothing of the past goes on with it. The losses stay in the segment, and
//      so does what is untimed for good beside kMostHeld (communicator_counters.cc): a communicator
//      that is not exact stays so for a daemon that knows nothing of the past. Fewer operations by
//      copy engine, which run no kernel, leave a communicator exact and are not estimated.
//   4. Collectives of a communicator run one after another. So untimed ones cannot have taken more
//      time than has passed beside the timed ones (Bound()). Otherwise the mean is that of one long
//      wait, such as for a rank that saves, which happened to be timed: it is forgotten.
//   5. A communicator that is not exact, and is older than what the daemon knows of it, starts at
//      0. PromQL takes a start at 0 as it is. A new estimate of the past could be slightly below
//      what was served before, and PromQL would count all of it once more.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/ledger/derived_times.h"
#include "exporter/ledger/node_counter.h"
#include "exporter/ledger/operation_times.h"
#include "exporter/ledger/step_counter.h"

namespace nccl_exporter::exporter {

class CommunicatorCounters {
 public:
  // Before the first Advance(): the communicator is older than what is known of it.
  void BeginWithoutPast(const collector::ProcessSnapshot& process,
                        const collector::CommunicatorSnapshot& communicator,
                        const DerivedMoment& now);
  // The same for a new one, whose operations are all counted.
  void BeginNew(const collector::ProcessSnapshot& process,
                const collector::CommunicatorSnapshot& communicator, const DerivedMoment& now);

  void Advance(const collector::ProcessSnapshot& process,
               const collector::CommunicatorSnapshot& communicator, const DerivedMoment& now,
               const DerivedTimes& times);

  // After it, the node's counts may be advanced, by the lowest rank.
  // All since the Advance() before.
  uint64_t new_compared() const { return new_compared_; }
  uint64_t new_progress() const { return new_progress_; }
  // Nothing if it is not known which network operations are timed.
  const std::optional<NetworkIncrease>& new_network() const { return new_network_; }
  const TimesByOperation& operations() const { return operations_; }
  NodeCounter& node() { return node_; }
  void EndInterval(int64_t monotonic_ns);
  // Whether operations() have what came since then: no if a snapshot missed the end of an interval.
  bool HasIntervalSince(int64_t monotonic_ns) const {
    return interval_start_ns_ == 0 || interval_start_ns_ == monotonic_ns;
  }

  // `spans_nodes`: whether ranks on other nodes take part. `is_lowest`: of those on this node.
  collector::DerivedCounts Counts(bool spans_nodes, bool is_lowest) const;

  uint64_t generation() const { return generation_; }
  int64_t advanced_ns() const { return advanced_ns_; }  // CLOCK_MONOTONIC of the latest Advance()
  // Since the first Advance() or BeginWithoutPast(), for the sums of its process.
  uint64_t NewKernelNs() const;
  uint64_t NewPointToPoint() const;
  uint64_t progress() const { return progress_; }
  bool has_times() const { return has_times_; }
  bool has_point_to_point() const { return point_to_point_ != 0; }

 private:
  using ByTraffic = std::array<uint64_t, collector::kTrafficCount>;

  void Begin(const collector::CommunicatorSnapshot& communicator, const DerivedMoment& now);
  struct Claim {
    OperationTimes* one = nullptr;
    double ns = 0;  // for the untimed operations of this kind that are new
  };
  void Estimate(const collector::CommunicatorSnapshot& communicator, const DerivedMoment& now,
                const DerivedTimes& times);
  // The sum of the claims of collectives if they fit into unexplained_ns_. While they do not, the
  // largest of them loses its mean. The operation that runs now may go on for the longest mean.
  double Bound(std::vector<Claim> claims, double measured_ns);
  // As collector::DerivedCounts. After point_to_point_.
  uint64_t ProgressOf(const collector::CommunicatorSnapshot& communicator) const;
  void Sum();
  void SeeNetwork(const collector::CommunicatorSnapshot& communicator);

  // Of an estimate: 292 years. More takes a forged segment, and is not counted.
  static constexpr double kMostNs = 9.2e18;

  uint64_t generation_ = 0;
  bool is_exact_ = false;
  bool has_times_ = false;
  int64_t since_realtime_ns_ = 0;
  int64_t counted_since_realtime_ns_ = 0;  // steps, and what is counted for the node
  int64_t advanced_ns_ = 0;                // CLOCK_MONOTONIC of the latest Advance()
  int64_t timed_ns_ = 0;                   // of the latest with timed operations
  std::array<double, collector::kTrafficCount> estimated_ns_{};
  ByTraffic highest_ns_{};  // measured and estimated, the highest so far
  ByTraffic origin_ns_{};   // what of it is not counted
  uint64_t kernel_ns_at_begin_ = 0;
  uint64_t point_to_point_ = 0;
  uint64_t point_to_point_at_begin_ = 0;
  uint64_t compared_seen_ = 0;  // as ArrivalCounts of the latest Advance() that had them
  uint64_t new_compared_ = 0;
  uint64_t progress_ = 0;  // as collector::DerivedCounts
  uint64_t new_progress_ = 0;
  collector::NetworkBusBytes network_seen_;
  std::optional<NetworkIncrease> new_network_;
  int64_t interval_start_ns_ = 0;  // CLOCK_MONOTONIC; 0: none has ended
  // Time that has passed and is neither measured nor estimated, of the recent past: operations may
  // be launched so long before they run.
  double unexplained_ns_ = 0;
  StepCounter steps_;
  NodeCounter node_;
  TimesByOperation operations_;
};

}  // namespace nccl_exporter::exporter
