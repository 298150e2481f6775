// SPDX-License-Identifier: Apache-2.0
// DepartedCounts, the last counts of communicators and processes that are gone, while others with
// the same labels are served. For the thread that makes the scrape.
//
// If a sum drops when one of its members goes, PromQL takes this for a reset and counts the rest of
// the sum once more: rate() would show a peak that never happened. So a sum keeps the last counts
// of its members until the last member is gone and the series ends. A restarted daemon knows the
// present members only.
//
// Only label sets that several members share have a cost: then the snapshot before the present one
// stays in memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exporter/series/series_group.h"

namespace nccl_exporter::exporter {

// Sums of a user beyond the first of each label set, which differ in their number of ranks. Where
// `comm` is dropped, eight GPUs with communicators of five sizes need 32. A segment may claim
// another number of ranks at each scrape. Beyond the limit, counts are added to the sum with the
// next higher number of ranks: bus bytes grow with it, so no series decreases.
inline constexpr size_t kMostFurtherSums = 256;

struct DepartedProcesses {
  std::array<uint64_t, kLossCount> losses{};
  std::optional<collector::DerivedProcessCounts> derived;
  int64_t start_realtime_ns = 0;  // of the first
};

// Per scrape: Begin(), AppendTo() and Remember() for each label set, End(). Without End(), the
// remembered members point into a snapshot that may be gone.
class DepartedCounts {
 public:
  // Members that were remembered and are not in `snapshot` have departed.
  void Begin(const collector::NodeSnapshot& snapshot);

  // Appends the departed members of a label set. They are valid until End().
  void AppendTo(const SharedLabels& labels, std::vector<GroupMember>& members) const;
  const DepartedProcesses* ProcessesOf(const SharedLabels& labels) const;  // null: none

  // Remembers members that share a label set in this scrape.
  void Remember(const SharedLabels& labels, std::span<const GroupMember> members);
  void Remember(const SharedLabels& labels, const collector::ProcessSnapshot& process);

  // Forgets the label sets without remembered members.
  void End(std::shared_ptr<const collector::NodeSnapshot> snapshot);

 private:
  struct CommunicatorOf {
    SharedLabels labels;
    GroupMember member;
  };
  struct ProcessOf {
    SharedLabels labels;
    const collector::ProcessSnapshot* process;
  };
  struct Communicators {
    uint64_t uid = 0;  // of the first
    // By number of ranks, on which bus bytes depend.
    std::map<uint64_t, collector::CommunicatorSnapshot> by_ranks;
  };

  void CountFurther();
  collector::CommunicatorSnapshot& SumOf(const CommunicatorOf& gone);
  void AddDeparted(const CommunicatorOf& gone);
  void AddDeparted(const ProcessOf& gone);

  // Which the remembered members point into.
  std::shared_ptr<const collector::NodeSnapshot> previous_;
  std::vector<CommunicatorOf> communicators_;
  std::vector<ProcessOf> processes_;
  std::map<SharedLabels, Communicators> departed_communicators_;
  std::map<uint64_t, size_t> further_;  // sums beyond the first of each label set, by user
  std::map<SharedLabels, DepartedProcesses> departed_processes_;
};

}  // namespace nccl_exporter::exporter
