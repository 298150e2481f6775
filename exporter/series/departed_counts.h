// SPDX-License-Identifier: Apache-2.0
// The last counts of communicators and processes that are gone, for as long as others with the same labels are served.
//
// A sum that drops when one of its members goes is a reset to PromQL, which then counts the rest of the sum once more:
// rate() would show a peak that never was. So a sum keeps what its members left behind, until the last of them is gone
// and the series ends. A daemon that starts anew knows the present members only. Only label sets that several share
// cost anything: then the snapshot before the present one stays in memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "exporter/series/subject.h"

namespace nccl_exporter {

struct DepartedProcesses {
  std::array<uint64_t, kLossCount> losses{};
  int64_t start_realtime_ns = 0;  // of the first
};

// For one scrape after the other: Begin(), the members of each label set, End().
class DepartedCounts {
 public:
  // What was remembered and is not in `snapshot` has departed.
  void Begin(const NodeSnapshot& snapshot);

  // Appends what has departed from a label set, as members that hold until End().
  void AppendTo(const SharedLabels& labels, std::vector<Member>& members) const;
  const DepartedProcesses* ProcessesOf(const SharedLabels& labels) const;  // null: none

  // Those that share a label set in this scrape.
  void Remember(const SharedLabels& labels, std::span<const Member> members);
  void Remember(const SharedLabels& labels, const ProcessSnapshot& process);

  // Forgets the label sets that nobody was remembered for.
  void End(std::shared_ptr<const NodeSnapshot> snapshot);

 private:
  struct CommunicatorOf {
    SharedLabels labels;
    Member member;
  };
  struct ProcessOf {
    SharedLabels labels;
    const ProcessSnapshot* process;
  };
  // By number of ranks, on which bus bytes depend.
  using Communicators = std::map<uint64_t, CommunicatorSnapshot>;

  void AddDeparted(const CommunicatorOf& gone);
  void AddDeparted(const ProcessOf& gone);

  std::shared_ptr<const NodeSnapshot> previous_;  // that what is remembered points into
  std::vector<CommunicatorOf> communicators_;
  std::vector<ProcessOf> processes_;
  std::map<SharedLabels, Communicators> departed_communicators_;
  std::map<SharedLabels, DepartedProcesses> departed_processes_;
};

}  // namespace nccl_exporter
