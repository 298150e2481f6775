// SPDX-License-Identifier: Apache-2.0
// SeriesGroup, the communicators that have the same labels and are therefore one to Prometheus. For
// the thread that makes the scrape.
//
// In most cases a label set belongs to one communicator alone. Several communicators share one in
// four cases:
//   - A communicator is made again with the same id. The closed one is still served for the
//     retention time.
//   - Two processes outside any job report the same id and rank.
//   - Labels are dropped.
//   - The label is comm="other", which has a sum of its own (kept_counts.h).
// Then counters and histograms are summed, gauges are merged as their rows say
// (communicator_series.cc), and each member in use has its own info metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"
#include "exporter/ledger/book.h"

namespace nccl_exporter::exporter {

class KeptCounts;
class LabelCache;

// Processes that have ended, while a living one has their labels (process_series.h).
using ReplacedProcesses = std::set<const collector::ProcessSnapshot*>;

struct GroupMember {
  const collector::ProcessSnapshot* process = nullptr;
  const collector::CommunicatorSnapshot* communicator = nullptr;
  const RankCounts* counts = nullptr;             // null: the book has none
  const ProcessCounts* process_counts = nullptr;  // null: the book has none
  // Its process is replaced: it has counters alone. nccl_process_halted is 0 for its labels, so the
  // rules would take its last state for that of a living rank. Without it the rank is missing.
  bool is_replaced = false;

  bool IsInUse() const { return process->is_alive && !communicator->is_closed; }
  // As the book says.
  bool IsQuiet() const { return counts != nullptr && counts->is_quiet; }
  bool IsLowest() const { return counts != nullptr && counts->node && counts->node->is_lowest; }
};

// Timed bytes by number of ranks, on which bus bytes depend; by function and size class.
using TimedBytes = std::array<std::array<uint64_t, kSizeClassCount>, kFunctionCount>;
using TimedByRanks = std::map<uint64_t, TimedBytes>;

struct SeriesGroup {
  SharedLabels labels;
  std::vector<GroupMember> members;  // in SeriesGroups at least one
  // Counts of all that have had these labels together (kept_counts.h), or of the only one:
  // functions, arrivals, network, and since when.
  const collector::CommunicatorSnapshot* counted = nullptr;
  const RankCounts* counts = nullptr;            // likewise; null: the book has none
  const TimedByRanks* timed_by_ranks = nullptr;  // null: `counted` is of one communicator

  // The members whose state is that of the group: those in use. If none is, the one created last of
  // those that are not replaced. None if all are.
  std::vector<const GroupMember*> InUse() const;
};

// All groups of a book. Their labels differ, so no two series of a scrape are the same.
class SeriesGroups {
 public:
  // Leaves out communicators whose id is not known yet. Keeps references to the arguments, but for
  // `replaced`.
  SeriesGroups(const Book& book, const ReplacedProcesses& replaced, LabelCache& labels,
               KeptCounts& kept);

  // Moves the members of these groups, indices of named() in order, to comm="other".
  void Fold(const std::vector<size_t>& groups);

  // In the snapshot's order.
  const std::vector<SeriesGroup>& named() const { return named_.groups; }
  // Communicators that have no series of their own because their user has no budget for new label
  // sets.
  const std::vector<GroupMember>& unbudgeted() const { return unbudgeted_; }
  // comm="other", one per job.
  const std::vector<SeriesGroup>& others() const { return others_.groups; }

 private:
  struct Table {
    std::vector<SeriesGroup> groups;
    std::unordered_map<const LabelSet*, size_t> index;  // equal sets are one object of the cache
  };

  void Add(const SharedLabels& labels, const GroupMember& member, Table& table);
  // Without labels, it is left out.
  void AddToOthers(const GroupMember& member);

  LabelCache& labels_;
  Table named_;
  Table others_;
  std::vector<GroupMember> unbudgeted_;
};

}  // namespace nccl_exporter::exporter
