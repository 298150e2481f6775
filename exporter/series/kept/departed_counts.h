// SPDX-License-Identifier: Apache-2.0
// DepartedCounts, the last counts of communicators and processes that are gone, while others with
// the same labels are served. For the thread that makes the scrape.
//
// If a sum drops when one of its members goes, PromQL takes this for a reset and counts the rest of
// the sum once more: rate() would show a peak that never happened. So a sum keeps the last counts
// of its members until the last member is gone and the series ends. A restarted daemon knows the
// present members only.
//
// Only label sets that several members share have a cost: then the book before the present one
// stays in memory. comm="other" has sums of another kind (other_counts.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exporter/ledger/book.h"
#include "exporter/series/kept/communicator_sums.h"
#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

struct DepartedProcesses {
  std::array<uint64_t, kLossCount> losses{};
  std::optional<ProcessCounts> counts;
  int64_t start_realtime_ns = 0;  // of the first
};

// Per scrape: Begin(), AppendTo() and Remember() for each label set, End().
class DepartedCounts {
 public:
  // Members that were remembered and are not in `book` have departed.
  void Begin(std::shared_ptr<const Book> book);

  // Appends the departed members of a label set. They are valid until End().
  void AppendTo(const SharedLabels& labels, std::vector<GroupMember>& members) const;
  const DepartedProcesses* ProcessesOf(const SharedLabels& labels) const;  // null: none

  // Remembers members that share a label set in this scrape.
  void Remember(const SharedLabels& labels, std::span<const GroupMember> members);
  void Remember(const SharedLabels& labels, const collector::ProcessSnapshot& process);

  // Forgets the label sets without remembered members.
  void End();

 private:
  struct CommunicatorOf {
    SharedLabels labels;
    GroupMember member;
  };
  struct ProcessOf {
    SharedLabels labels;
    const collector::ProcessSnapshot* process;
    const ProcessCounts* counts;  // null: the book has none
  };

  void AddDeparted(const CommunicatorOf& gone);
  void AddDeparted(const ProcessOf& gone);

  // The remembered members point into it.
  std::shared_ptr<const Book> latest_;
  std::vector<CommunicatorOf> communicators_;
  std::vector<ProcessOf> processes_;
  CommunicatorSums departed_communicators_;
  std::map<SharedLabels, DepartedProcesses> departed_processes_;
};

}  // namespace nccl_exporter::exporter
