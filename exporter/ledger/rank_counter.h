// SPDX-License-Identifier: Apache-2.0
// RankCounter, the counters of one rank in one communicator (RankCounts) and the state that they
// need from one snapshot to the next. For one thread at a time.
//
// Kernel seconds are the measured durations: operations without times add none. The segment has
// their sum, so a daemon that knows nothing of the past goes on with it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/ledger/ledger_times.h"
#include "exporter/ledger/node_counter.h"
#include "exporter/ledger/operation_times.h"
#include "exporter/ledger/step_counter.h"

namespace nccl_exporter::exporter {

class RankCounter {
 public:
  // Called before the first Advance() of a communicator whose past is not known.
  void BeginWithoutPast(const collector::CommunicatorSnapshot& communicator, const Moment& now);
  // Called before the first Advance() of a new one, whose operations are all counted.
  void BeginNew(const collector::CommunicatorSnapshot& communicator, const Moment& now);

  void Advance(const collector::CommunicatorSnapshot& communicator, const Moment& now,
               const LedgerTimes& times);

  // Increases since the Advance() before, for the node's counts of the lowest rank.
  uint64_t new_compared() const { return new_compared_; }
  uint64_t new_progress() const { return new_progress_; }
  // Nothing if it is not known which network operations are timed.
  const std::optional<NetworkIncrease>& new_network() const { return new_network_; }
  const TimesByOperation& operations() const { return operations_; }
  NodeCounter& node() { return node_; }
  void EndInterval(int64_t monotonic_ns);
  // Whether operations() have what came since then: not if a snapshot missed the end of an
  // interval.
  bool HasIntervalSince(int64_t monotonic_ns) const {
    return interval_start_ns_ == 0 || interval_start_ns_ == monotonic_ns;
  }

  // `spans_nodes`: whether ranks on other nodes take part. `is_lowest`: of those on this node.
  RankCounts Counts(bool spans_nodes, bool is_lowest) const;

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

  // As RankCounts. After point_to_point_.
  uint64_t ProgressOf(const collector::CommunicatorSnapshot& communicator) const;
  void Sum();
  void SeeNetwork(const collector::CommunicatorSnapshot& communicator);

  uint64_t generation_ = 0;
  bool has_times_ = false;
  int64_t counted_since_realtime_ns_ = 0;  // steps, and what is counted for the node
  int64_t advanced_ns_ = 0;                // CLOCK_MONOTONIC of the latest Advance()
  ByTraffic kernel_ns_{};
  uint64_t kernel_ns_at_begin_ = 0;
  uint64_t point_to_point_ = 0;
  uint64_t point_to_point_at_begin_ = 0;
  uint64_t compared_seen_ = 0;  // as ArrivalCounts of the latest Advance() that had them
  uint64_t new_compared_ = 0;
  uint64_t progress_ = 0;  // as RankCounts
  uint64_t new_progress_ = 0;
  collector::NetworkBusBytes network_seen_;
  std::optional<NetworkIncrease> new_network_;
  int64_t interval_start_ns_ = 0;  // CLOCK_MONOTONIC; 0: none has ended
  StepCounter steps_;
  NodeCounter node_;
  TimesByOperation operations_;
};

}  // namespace nccl_exporter::exporter
