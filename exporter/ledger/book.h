// SPDX-License-Identifier: Apache-2.0
// Book, cumulative numbers of each process and rank up to one snapshot. The ledger makes it;
// docs/metrics.md defines the numbers. Plain data, for any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// Between the begin of a communicator or a process and the first snapshot that has it, at most: its
// initialization on the GPU, and a look through the directories.
inline constexpr int64_t kLatestSightNs = 5'000'000'000;

struct OperationKind {
  Function function = Function::kOther;
  uint8_t size_class = 0;

  auto operator<=>(const OperationKind&) const = default;
};

// Collectives and sizes of a communicator that have a wait per step, at most.
inline constexpr size_t kMostStepWaits = 4;

struct StepCounts {
  uint64_t steps = 0;  // operations of the rarest regular collective and size
  // By regular collective and size: the mean of the longest launch in a step, times the steps.
  std::map<OperationKind, uint64_t> waits_ns;
  int64_t since_realtime_ns = 0;

  bool operator==(const StepCounts&) const = default;
};

// Timed operations of one kind, of 16 MiB and more.
struct LargeCounts {
  uint64_t timed_operations = 0;
  uint64_t bus_bytes = 0;
  uint64_t busy_ns = 0;

  bool operator==(const LargeCounts&) const = default;
  LargeCounts& operator+=(const LargeCounts& more) {
    timed_operations += more.timed_operations;
    bus_bytes += more.bus_bytes;
    busy_ns += more.busy_ns;
    return *this;
  }
};

// Numbers that all ranks of a communicator on this node have once: its lowest rank at the time
// counts them. If another rank becomes the lowest, it counts from 0 on, and the one before keeps
// what it counted. So each count never decreases, and their sum is the node's.
struct NodeCounts {
  bool is_lowest = false;                 // this rank counts now
  std::optional<uint64_t> progress = {};  // starts and completions of all these ranks
  std::optional<uint64_t> compared;       // as ArrivalCounts; where ranks are compared
  std::map<OperationKind, LargeCounts> large;
  // Sum over all ranks here whose network operations are timed.
  std::optional<collector::NetworkBusBytes> network = {};
  int64_t since_realtime_ns = 0;

  bool operator==(const NodeCounts&) const = default;
};

// Counters of one rank in one communicator. They never decrease.
struct RankCounts {
  std::array<uint64_t, collector::kTrafficCount> kernel_ns{};  // of timed operations
  std::optional<StepCounts> steps;                             // if other nodes take part
  std::optional<NodeCounts> node;  // if this rank counts for the node, or has counted
  // Starts and completions of operations: twice those started, less those in flight where that is
  // known. Any change is progress, also a decrease: the state of operations may become known.
  uint64_t progress = 0;
  // No operation started or completed for some seconds, or ever; or the process is halted.
  bool is_quiet = false;

  bool operator==(const RankCounts&) const = default;
};

// Counters of a process: sums over its communicators, those that are gone included.
struct ProcessCounts {
  std::optional<uint64_t> kernel_ns = {};                  // if any operation was timed
  std::optional<uint64_t> point_to_point_operations = {};  // if there were any
  uint64_t progress = 0;  // as RankCounts, and one for each, of those that are served
  int64_t since_realtime_ns = 0;

  bool operator==(const ProcessCounts&) const = default;
};

struct Book {
  struct Row {
    std::optional<ProcessCounts> counts;
    std::vector<std::optional<RankCounts>> ranks;  // by place in ProcessSnapshot::communicators
  };

  std::shared_ptr<const collector::NodeSnapshot> node;  // never null
  std::vector<Row> rows;                                // by place in NodeSnapshot::processes

  // Without any counts.
  explicit Book(std::shared_ptr<const collector::NodeSnapshot> snapshot)
      : node(std::move(snapshot)), rows(node->processes.size()) {
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i].ranks.resize(node->processes[i].communicators.size());
  }

  // Null where there are none. The arguments are parts of `node`.
  const ProcessCounts* Of(const collector::ProcessSnapshot& process) const {
    return PointerTo(rows[PlaceOf(process)].counts);
  }
  const RankCounts* Of(const collector::ProcessSnapshot& process,
                       const collector::CommunicatorSnapshot& communicator) const {
    const auto place = static_cast<size_t>(&communicator - process.communicators.data());
    return PointerTo(rows[PlaceOf(process)].ranks[place]);
  }

 private:
  template <typename Counts>
  static const Counts* PointerTo(const std::optional<Counts>& counts) {
    return counts ? &*counts : nullptr;
  }
  size_t PlaceOf(const collector::ProcessSnapshot& process) const {
    return static_cast<size_t>(&process - node->processes.data());
  }
};

}  // namespace nccl_exporter::exporter
