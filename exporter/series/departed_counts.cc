// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/departed_counts.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// A file system may give the inode number of a removed file to the next one. The time of start
// distinguishes them.
auto KeyOf(const collector::ProcessSnapshot& process) {
  return std::tuple(process.file, process.start_realtime_ns);
}

auto KeyOf(const collector::ProcessSnapshot& process,
           const collector::CommunicatorSnapshot& communicator) {
  return std::tuple(process.file, communicator.slot, communicator.generation, communicator.id,
                    communicator.rank);
}

void Add(const collector::CommunicatorSnapshot& more, collector::CommunicatorSnapshot& sum) {
  sum.created_realtime_ns = std::min(sum.created_realtime_ns, more.created_realtime_ns);
  for (size_t i = 0; i < sum.functions.size(); ++i) {
    if (more.functions.IsInUse(i)) sum.functions.Change(i) += more.functions[i];
  }
  AddKnown(sum.derived, more.derived);
  AddKnown(sum.arrivals, more.arrivals);
  AddKnown(sum.network, more.network);
}

// Erases label sets without a remembered member: their last member is gone, and the series ends.
template <typename Map, typename Remembered>
void KeepSharedOnly(const std::vector<Remembered>& remembered, Map& departed) {
  std::set<SharedLabels> shared;
  for (const Remembered& one : remembered) shared.insert(one.labels);
  std::erase_if(departed, [&](const auto& item) { return !shared.contains(item.first); });
}

}  // namespace

void DepartedCounts::Begin(const collector::NodeSnapshot& snapshot) {
  if (previous_ == nullptr) return;
  CountFurther();
  std::set<decltype(KeyOf({}))> processes;
  std::set<decltype(KeyOf({}, {}))> communicators;
  for (const collector::ProcessSnapshot& process : snapshot.processes) {
    processes.insert(KeyOf(process));
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      communicators.insert(KeyOf(process, communicator));
    }
  }
  for (const CommunicatorOf& one : communicators_) {
    if (!communicators.contains(KeyOf(*one.member.process, *one.member.communicator)))
      AddDeparted(one);
  }
  for (const ProcessOf& one : processes_) {
    if (!processes.contains(KeyOf(*one.process))) AddDeparted(one);
  }
  // In this order: the remembered members point into the previous snapshot.
  communicators_.clear();
  processes_.clear();
  previous_.reset();
}

void DepartedCounts::CountFurther() {
  further_.clear();
  for (const auto& [labels, sums] : departed_communicators_)
    further_[sums.uid] += sums.by_ranks.size() - 1;
}

collector::CommunicatorSnapshot& DepartedCounts::SumOf(const CommunicatorOf& gone) {
  const collector::CommunicatorSnapshot& counts = *gone.member.communicator;
  auto& [uid, sums] = departed_communicators_[gone.labels];
  if (sums.empty()) uid = gone.member.process->uid;
  auto sum = sums.lower_bound(counts.ranks);
  if (sum != sums.end() && sum->first == counts.ranks) return sum->second;
  if (sums.empty() || further_[uid] < kMostFurtherSums) {
    if (!sums.empty()) ++further_[uid];
    sum = sums.try_emplace(counts.ranks).first;
    sum->second.created_realtime_ns = counts.created_realtime_ns;
  } else if (sum == sums.end()) {
    auto highest = sums.extract(std::prev(sums.end()));
    highest.key() = counts.ranks;
    sum = sums.insert(std::move(highest)).position;
  }
  sum->second.ranks = sum->first;
  return sum->second;
}

void DepartedCounts::AddDeparted(const CommunicatorOf& gone) {
  Add(*gone.member.communicator, SumOf(gone));
}

void DepartedCounts::AddDeparted(const ProcessOf& gone) {
  const auto [sum, is_first] = departed_processes_.try_emplace(gone.labels);
  std::ranges::transform(sum->second.losses, gone.process->losses, sum->second.losses.begin(),
                         std::plus<>());
  AddKnown(sum->second.derived, gone.process->derived);
  const int64_t start = gone.process->start_realtime_ns;
  sum->second.start_realtime_ns = is_first ? start : std::min(sum->second.start_realtime_ns, start);
}

void DepartedCounts::AppendTo(const SharedLabels& labels, std::vector<GroupMember>& members) const {
  const auto found = departed_communicators_.find(labels);
  if (found == departed_communicators_.end()) return;
  for (const auto& [ranks, counts] : found->second.by_ranks) {
    members.push_back({.process = nullptr, .communicator = &counts, .has_departed = true});
  }
}

const DepartedProcesses* DepartedCounts::ProcessesOf(const SharedLabels& labels) const {
  const auto found = departed_processes_.find(labels);
  return found == departed_processes_.end() ? nullptr : &found->second;
}

void DepartedCounts::Remember(const SharedLabels& labels, std::span<const GroupMember> members) {
  for (const GroupMember& member : members) {
    if (!member.has_departed) communicators_.push_back({.labels = labels, .member = member});
  }
}

void DepartedCounts::Remember(const SharedLabels& labels,
                              const collector::ProcessSnapshot& process) {
  processes_.push_back({.labels = labels, .process = &process});
}

void DepartedCounts::End(std::shared_ptr<const collector::NodeSnapshot> snapshot) {
  KeepSharedOnly(communicators_, departed_communicators_);
  KeepSharedOnly(processes_, departed_processes_);
  if (!communicators_.empty() || !processes_.empty()) previous_ = std::move(snapshot);
}

}  // namespace nccl_exporter::exporter
