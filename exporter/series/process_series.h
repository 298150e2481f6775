// SPDX-License-Identifier: Apache-2.0
// ProcessSeries, the lines that know the value of each metric of a process. For the thread that
// makes the scrape.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/kept/departed_counts.h"
#include "exporter/series/labels/label_cache.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

// Processes that have the same labels: a container that restarted in place, the same pid in two
// containers without job labels, or a dropped label. Their counts are summed, those of departed
// ones included. The sum is alive while one of them is, and stopped while one of them is. So while
// one of them lives, nothing shows that the ended ones are dead: they are replaced, and have no
// state any more (GroupMember::is_replaced).
struct ProcessGroup {
  SharedLabels labels;
  std::vector<const collector::ProcessSnapshot*> members;
  std::array<uint64_t, kLossCount> losses{};
  std::optional<collector::DerivedProcessCounts> derived = std::nullopt;
  bool is_alive = false;
  std::optional<bool> is_stopped = std::nullopt;
  int64_t since_ns = 0;

  // The user whose share of the limit it takes. If dropped labels merge users, that is the first.
  uint64_t uid() const { return members.front()->uid; }
};

// All processes of a snapshot. Those that share labels are remembered in `departed`.
std::vector<ProcessGroup> ProcessGroups(const collector::NodeSnapshot& snapshot, LabelCache& labels,
                                        DepartedCounts& departed);

// The ended processes among them whose labels a living one has.
ReplacedProcesses ReplacedProcessesOf(const std::vector<ProcessGroup>& groups);

class ProcessSeries {
 public:
  // Keeps a reference to the builder.
  explicit ProcessSeries(ExpositionBuilder& builder);

  // The alert series of a process, and all others.
  void AddAlerts(const ProcessGroup& process);
  void AddDetail(const ProcessGroup& process);

 private:
  // Nothing is added while the count is 0.
  void AddCount(Metric metric, LabelsId labels, uint64_t count);

  ExpositionBuilder& builder_;
  std::array<LabelsId, kLossCount> reasons_{};
};

}  // namespace nccl_exporter::exporter
