// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/kept/departed_counts.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "exporter/series/kept/member_key.h"

namespace nccl_exporter::exporter {
namespace {

template <typename Counts>
void AddKnown(std::optional<Counts>& sum, const Counts* more) {
  if (more != nullptr) collector::AddKnown(sum, std::optional(*more));
}

void Add(const GroupMember& member, CommunicatorSums::Sum& of_labels) {
  AddKnown(of_labels.counts, member.counts);
  const collector::CommunicatorSnapshot& more = *member.communicator;
  collector::CommunicatorSnapshot& sum = of_labels.communicator;
  sum.created_realtime_ns = std::min(sum.created_realtime_ns, more.created_realtime_ns);
  for (size_t i = 0; i < sum.functions.size(); ++i) {
    if (more.functions.IsInUse(i)) sum.functions.Change(i) += more.functions[i];
  }
  collector::AddKnown(sum.arrivals, more.arrivals);
  collector::AddKnown(sum.network, more.network);
}

template <typename Remembered>
std::set<SharedLabels> LabelsOf(const std::vector<Remembered>& remembered) {
  std::set<SharedLabels> labels;
  for (const Remembered& one : remembered) labels.insert(one.labels);
  return labels;
}

}  // namespace

void DepartedCounts::Begin(std::shared_ptr<const Book> book) {
  // The remembered members point into it.
  const auto before = std::exchange(latest_, std::move(book));
  const auto communicators_before = std::exchange(communicators_, {});
  const auto processes_before = std::exchange(processes_, {});
  if (before == nullptr) return;
  std::set<decltype(MemberKey({}))> processes;
  std::set<decltype(MemberKey({}, {}))> communicators;
  for (const collector::ProcessSnapshot& process : latest_->node->processes) {
    processes.insert(MemberKey(process));
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      communicators.insert(MemberKey(process, communicator));
    }
  }
  for (const CommunicatorOf& one : communicators_before) {
    if (!communicators.contains(MemberKey(*one.member.process, *one.member.communicator)))
      AddDeparted(one);
  }
  for (const ProcessOf& one : processes_before) {
    if (!processes.contains(MemberKey(*one.process))) AddDeparted(one);
  }
}

void DepartedCounts::AddDeparted(const CommunicatorOf& gone) {
  const collector::CommunicatorSnapshot& counts = *gone.member.communicator;
  Add(gone.member, departed_communicators_.Of(gone.labels, gone.member.process->uid, counts.ranks,
                                              counts.created_realtime_ns));
}

void DepartedCounts::AddDeparted(const ProcessOf& gone) {
  const auto [sum, is_first] = departed_processes_.try_emplace(gone.labels);
  std::ranges::transform(sum->second.losses, gone.process->losses, sum->second.losses.begin(),
                         std::plus<>());
  AddKnown(sum->second.counts, gone.counts);
  const int64_t start = gone.process->start_realtime_ns;
  sum->second.start_realtime_ns = is_first ? start : std::min(sum->second.start_realtime_ns, start);
}

void DepartedCounts::AppendTo(const SharedLabels& labels, std::vector<GroupMember>& members) const {
  departed_communicators_.AppendTo(labels, members);
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
  processes_.push_back({.labels = labels, .process = &process, .counts = latest_->Of(process)});
}

// The last member of the others is gone, and their series end.
void DepartedCounts::End() {
  departed_communicators_.KeepOnly(LabelsOf(communicators_));
  std::erase_if(departed_processes_, [shared = LabelsOf(processes_)](const auto& item) {
    return !shared.contains(item.first);
  });
  if (communicators_.empty() && processes_.empty()) latest_.reset();
}

}  // namespace nccl_exporter::exporter
