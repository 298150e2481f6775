// SPDX-License-Identifier: Apache-2.0
// NodeCounter, what a rank has counted for all ranks of its communicator on this node while it was
// the lowest of them (NodeCounts). For one thread at a time. Sums that 62 bits do not
// hold take a forged segment, and are not counted. Bus bytes of a whole node come so far in months:
// then the sums of a direction begin at 0 again, which rate() takes for a start.
//
// Large transfers: only the last rank to arrive measures a transfer without waiting for others. So
// each interval adds the timed operations of one rank, the one with the least time for a byte. All
// three sums have the same operations, so their quotients are true. One collective and size is
// counted: that of 16 MiB and more which has moved the most bytes on this node.
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
  // By direction: they are all that it has, since it has timed bytes only now.
  std::array<bool, kNetworkDirectionCount> is_first{};
};

class NodeCounter {
 public:
  // The communicator has several ranks on this node, and so many more operations were compared.
  void CountCompared(uint64_t more) {
    has_compared_ = true;
    compared_ += more;
  }

  // So many operations more were started or completed, or none: a row that was served once stays.
  void CountProgress(uint64_t more);

  // At the end of an interval: the operations of each rank on this node, and the ranks of the whole
  // communicator.
  void CountLarge(std::span<const TimesByOperation* const> local, uint64_t ranks);

  // So much more of a rank on this node. Of the first timed bytes of a rank rate() sees no
  // increase: they begin a series. So they and what was before them are counted where they begin
  // the node's row, too, which had `before` after the last snapshot.
  void CountNetwork(const NetworkIncrease& more, const collector::NetworkBusBytes& before);
  const collector::NetworkBusBytes& network() const { return network_; }

  bool has_counted() const {
    return has_compared_ || has_progress_ || !large_.empty() || has_network_;
  }
  // Without `is_lowest` and `since_realtime_ns`.
  NodeCounts Counts() const;

 private:
  // Whether there is one to count.
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
