// SPDX-License-Identifier: Apache-2.0
// ProcessSeries, the lines that know the value of each metric of a process. For the thread that
// makes the scrape.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"
#include "exporter/ledger/book.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/kept/kept_counts.h"
#include "exporter/series/labels/label_cache.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

// Processes that have the same labels: a container that restarted in place, the same pid in two
// containers without job labels, or a dropped label. Their counts are summed, those that are
// gone included. The sum is alive while one of them is, and stopped while one of them is.
//
// A process that has ended is replaced by a later one of the same host name, as after a restart in
// place: it has no state any more (GroupMember::is_replaced). One in another container is not, and
// the sum is halted while one of them is. Where the label `pid` is dropped, a process is replaced
// by any that lives.
struct ProcessGroup {
  SharedLabels labels;
  std::vector<const collector::ProcessSnapshot*> members;
  ProcessSum sum = {};
  bool is_alive = false;
  std::optional<bool> is_stopped = std::nullopt;
  bool is_halted = false;  // one that is not replaced is
  uint64_t unread = 0;     // communicators in use that the collector had no room for
  // Signals of the member that began last, of those that have some. A sum would drop with each
  // member that ends.
  const collector::HostSignals* host = nullptr;

  SharedLabels environment = nullptr;  // of the member that began last

  // The user whose share of the limit it takes. If dropped labels merge users, that is the first.
  uint64_t uid() const { return members.front()->uid; }
};

// All processes of a book, and in `replaced` the ended ones among them that another one replaces.
std::vector<ProcessGroup> ProcessGroups(const Book& book, LabelCache& labels, KeptCounts& kept,
                                        ReplacedProcesses& replaced);

// Communicators in use that are folded into comm="other", by process.
using UnservedCommunicators = std::map<const collector::ProcessSnapshot*, uint64_t>;

class ProcessSeries {
 public:
  // Keeps a reference to the builder.
  explicit ProcessSeries(ExpositionBuilder& builder);

  // The alert series of a process, and all others.
  void AddAlerts(const ProcessGroup& process);
  void AddDetail(const ProcessGroup& process);

  // Communicators in use of each process that have no series of their own. `folded`: beside those
  // that the collector had no room for. Up to `series_limit` samples of the scrape.
  void AddUnserved(const std::vector<ProcessGroup>& processes, const UnservedCommunicators& folded,
                   size_t series_limit);

 private:
  // `units` of the signal are one of the metric. Nothing is added if it is not known.
  using Signal = std::optional<uint64_t> collector::HostSignals::*;
  void AddSignal(Metric metric, LabelsId labels, const ProcessGroup& process, Signal signal,
                 double units = 1);

  // Nothing is added while the count is 0.
  void AddCount(Metric metric, LabelsId labels, uint64_t count);

  ExpositionBuilder& builder_;
  std::array<LabelsId, kLossCount> reasons_{};
};

}  // namespace nccl_exporter::exporter
