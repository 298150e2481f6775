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
#include <optional>
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
  void CountCompared(uint64_t more) { counts_.compared = counts_.compared.value_or(0) + more; }

  // Counts starts and completions, also 0: a row that was served once stays.
  void CountProgress(uint64_t more);

  // At the end of an interval: the operations of each rank on this node, and the ranks of the whole
  // communicator.
  void CountLarge(std::span<const TimesByOperation* const> local, uint64_t ranks);

  // Counts bytes of one rank. rate() ignores the first value of a series: so the first timed bytes
  // of a rank are counted only where they begin the node's row, too. `before` is that row after the
  // last snapshot.
  void CountNetwork(const NetworkIncrease& more, const collector::NetworkBusBytes& before);
  collector::NetworkBusBytes network() const {
    return counts_.network.value_or(collector::NetworkBusBytes{});
  }

  // Without `is_lowest` and `since_realtime_ns`.
  const NodeCounts& counts() const { return counts_; }

 private:
  // Chooses the collective and size to count. False if there is none.
  bool Choose(std::span<const TimesByOperation* const> local, uint64_t ranks);

  NodeCounts counts_;
  std::optional<OperationKind> choice_;
};

}  // namespace nccl_exporter::exporter
