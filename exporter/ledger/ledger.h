// SPDX-License-Identifier: Apache-2.0
// Ledger, which counts what all processes and ranks of the node do from one snapshot to the next.
// For one thread at a time.
//
// A process is recognized by its file and its start, a communicator by its process, slot and
// generation. If it is met for the first time and is older than the snapshot before, its past is
// not known (rank_counter.h). A communicator that is gone stays in the sums of its process.
//
// Processes and communicators in no snapshot are forgotten after LedgerTimes::forget_ns, and
// earlier where one user has more than kMostAbsent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/ledger/book.h"
#include "exporter/ledger/ledger_times.h"
#include "exporter/ledger/rank_counter.h"

namespace nccl_exporter::exporter {

// Communicators and processes of one user that are remembered at most while no snapshot has them:
// as many as a snapshot holds communicators. With more, all of this user are forgotten.
inline constexpr size_t kMostAbsent = collector::kMaxCommunicators;

class Ledger {
 public:
  explicit Ledger(const LedgerTimes& times = {}) : times_(times) {}

  // Counts what is new in the snapshot. The book has counts for each process and communicator.
  std::shared_ptr<const Book> Enter(std::shared_ptr<const collector::NodeSnapshot> node,
                                    const Moment& now);

  // Communicators and processes that are remembered, those of no snapshot included.
  size_t remembered() const;

 private:
  using ProcessKey = std::tuple<uint64_t, uint64_t, int64_t>;  // device, inode, start
  struct Process {
    uint64_t uid = 0;
    std::map<uint32_t, RankCounter> communicators;  // by slot
    uint64_t gone_kernel_ns = 0;
    uint64_t gone_point_to_point = 0;
    bool has_times = false;
    bool has_point_to_point = false;
    int64_t since_realtime_ns = 0;
    int64_t seen_ns = 0;  // CLOCK_MONOTONIC

    void TakeOver(const RankCounter& gone);
  };

  // A rank in the snapshot that is being counted.
  struct Rank {
    const collector::ProcessSnapshot* process;
    const collector::CommunicatorSnapshot* communicator;
    RankCounter* counter;
    std::optional<RankCounts>* counts;  // in the book
  };

  static bool IsInUse(const Rank& rank);
  bool IsNew(int64_t created_realtime_ns) const;
  // Appends the ranks of the process.
  void AdvanceProcess(const collector::ProcessSnapshot& snapshot, const Moment& now, Book::Row& row,
                      std::vector<Rank>& ranks);
  // Fills the counts of the ranks that one communicator has on this node.
  void AdvanceCommunicator(std::span<const Rank> ranks, const Moment& now,
                           bool ends_interval) const;
  void Fill(const Rank& rank, bool spans_nodes, bool is_lowest, const Moment& now) const;
  RankCounter& Find(Process& process, const collector::CommunicatorSnapshot& communicator,
                    const Moment& now);
  void Forget(const Moment& now);

  LedgerTimes times_;
  bool has_previous_ = false;
  int64_t previous_realtime_ns_ = 0;  // of the snapshot before
  int64_t interval_start_ns_ = 0;     // CLOCK_MONOTONIC
  std::map<ProcessKey, Process> processes_;
};

}  // namespace nccl_exporter::exporter
