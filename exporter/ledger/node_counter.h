// SPDX-License-Identifier: Apache-2.0
// NodeCounter, the numbers that a rank has counted for all ranks of its communicator on this node
// while it was the lowest of them (NodeCounts). For one thread at a time.
//
// Increases of 62 bits and more, which only a forged segment has, are not counted. Bus bytes of a
// node come so far in months: then the sums of a direction begin at 0 again.
//
// Only the last rank to arrive measures a transfer without waiting. So each interval adds the timed
// operations of the rank with the least time for a byte. One collective and size is counted: that
// of 16 MiB and more which has moved the most bytes on this node.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/ledger/operation_times.h"

namespace nccl_exporter::exporter {

// Bytes of a rank since the snapshot before.
struct NetworkIncrease {
  collector::NetworkBusBytes bytes;
  // By direction: these are the first timed bytes of the rank.
  std::array<bool, kNetworkDirectionCount> is_first{};
};

class NodeCounter {
 public:
  // Counts compared operations of a communicator with several ranks on this node.
  void CountCompared(uint64_t more) {
    has_compared_ = true;
    compared_ += more;
  }

  // Counts starts and completions, also 0: a row that was served once stays.
  void CountProgress(uint64_t more);

  // At the end of an interval: the operations of each rank on this node, and the ranks of the whole
  // communicator.
  void CountLarge(std::span<const TimesByOperation* const> local, uint64_t ranks);

  // Counts bytes of one rank. rate() ignores the first value of a series: so the first timed bytes
  // of a rank are counted only where they begin the node's row, too. `before` is that row after the
  // last snapshot.
  void CountNetwork(const NetworkIncrease& more, const collector::NetworkBusBytes& before);
  const collector::NetworkBusBytes& network() const { return network_; }

  bool has_counted() const {
    return has_compared_ || has_progress_ || !large_.empty() || has_network_;
  }
  // Without `is_lowest` and `since_realtime_ns`.
  NodeCounts Counts() const;

 private:
  // Chooses the collective and size to count. False if there is none.
  bool Choose(std::span<const TimesByOperation* const> local, uint64_t ranks);

  bool has_compared_ = false;
  uint64_t compared_ = 0;
  bool has_progress_ = false;
  uint64_t progress_ = 0;
  bool has_network_ = false;
  collector::NetworkBusBytes network_;
  bool has_choice_ = false;
  OperationKey choice_;
  std::map<OperationKey, LargeCounts> large_;
};

}  // namespace nccl_exporter::exporter
