// SPDX-License-Identifier: Apache-2.0
// BandwidthPast, bandwidth of communicators below their own past: the conditions of
// NCCLBandwidthDegraded (docs/alerts.md), over ten minutes in place of an hour.
//
// The fastest rank is compared: only the last rank to arrive measures the transfer without waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/findings/finding.h"
#include "exporter/findings/thresholds.h"
#include "exporter/ledger/node_history.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {

// Functions and size classes of communicators that are followed, of one user and of all: at most 1
// KB each. Users share the second number equally.
inline constexpr size_t kMostPastsPerUser = 512;
inline constexpr size_t kMostPasts = 4096;

// Follows only communicators with all ranks on this node: a late rank of another node looks like a
// slow network.
//
// Not thread-safe: its owner locks.
class BandwidthPast {
 public:
  explicit BandwidthPast(const Thresholds& times) : times_(times) {}

  // Judges the newest window of `history`, if the judgement before is an interval ago.
  // `realtime_ns` is by the node's clock, `monotonic_ns` by one that is never set.
  void Record(const NodeHistory& history, int64_t realtime_ns, int64_t monotonic_ns);

  // At most one per function and size class of a communicator that `node` still has.
  std::vector<Finding> Findings(const collector::NodeSnapshot& node) const;

  // Keys beyond the limits in each judgement, summed over judgements.
  uint64_t left_out() const { return left_out_; }

 private:
  using Key = std::tuple<collector::CommunicatorKey, Function, uint8_t>;  // and size class
  struct Transfer {
    double bandwidth = 0;      // bytes per second of the fastest rank; 0: nothing was timed
    double message_bytes = 0;  // mean
  };
  struct Past {
    std::deque<Transfer> transfers;  // one per judgement, the newest last
    // The baseline when it became low: a long fault is not compared with itself.
    Transfer before;
    int64_t low_since_monotonic_ns = 0;
    int64_t low_since_realtime_ns = 0;
    bool is_low = false;
    bool is_degraded = false;  // low for long enough
  };

  // Makes room for new keys, as far as their users have a share.
  void Follow(const std::map<Key, Transfer>& newest);
  std::map<Key, Transfer> NewestWindow(const NodeHistory& history) const;
  // Lower quartile of the values from Thresholds::history up to arrivals_window ago; bandwidth 0 if
  // there are too few.
  Transfer Baseline(const Past& past) const;
  void Judge(Past& past, int64_t realtime_ns, int64_t monotonic_ns) const;

  Thresholds times_;
  int64_t next_judgement_ns_ = 0;
  std::map<Key, Past> pasts_;
  uint64_t left_out_ = 0;
};

}  // namespace nccl_exporter::exporter
