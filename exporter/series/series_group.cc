// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/series_group.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "exporter/series/kept/kept_counts.h"
#include "exporter/series/labels/label_cache.h"

namespace nccl_exporter::exporter {

std::vector<const GroupMember*> SeriesGroup::InUse() const {
  std::vector<const GroupMember*> in_use;
  for (const GroupMember& member : members) {
    if (member.IsInUse()) in_use.push_back(&member);
  }
  if (!in_use.empty()) return in_use;
  const auto age = [](const GroupMember& member) {
    return std::tuple(!member.is_replaced, member.communicator->created_realtime_ns,
                      member.communicator->generation);
  };
  const GroupMember& newest = *std::ranges::max_element(members, {}, age);
  if (!newest.is_replaced) in_use.push_back(&newest);
  return in_use;
}

SeriesGroups::SeriesGroups(const Book& book, const ReplacedProcesses& replaced, LabelCache& labels,
                           KeptCounts& kept)
    : labels_(labels) {
  for (const collector::ProcessSnapshot& process : book.node->processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      const GroupMember member{.process = &process,
                               .communicator = &communicator,
                               .counts = book.Of(process, communicator),
                               .process_counts = book.Of(process),
                               .is_replaced = replaced.contains(&process)};
      if (communicator.is_overflow) {
        AddToOthers(member);
      } else if (communicator.has_identity) {
        const SharedLabels& series = labels_.Of(process, communicator).series;
        if (series) {
          Add(series, member, named_);
        } else {
          unbudgeted_.push_back(member);
          AddToOthers(member);
        }
      }
    }
  }
  for (SeriesGroup& group : named_.groups) kept.CountShared(group);
}

void SeriesGroups::Fold(const std::vector<size_t>& groups) {
  for (const size_t i : groups) {
    for (const GroupMember& member : named_.groups[i].members) AddToOthers(member);
  }
  // From here on named_ is only read; its index is not kept up.
  size_t next = 0, kept = 0;
  for (size_t i = 0; i < named_.groups.size(); ++i) {
    if (next < groups.size() && groups[next] == i) {
      ++next;
    } else if (kept++ != i) {
      named_.groups[kept - 1] = std::move(named_.groups[i]);
    }
  }
  named_.groups.resize(kept);
  named_.index.clear();
}

void SeriesGroups::AddToOthers(const GroupMember& member) {
  const SharedLabels& labels = labels_.OfOthers(*member.process);
  if (labels) Add(labels, member, others_);
}

void SeriesGroups::Add(const SharedLabels& labels, const GroupMember& member, Table& table) {
  const auto [entry, is_new] = table.index.try_emplace(labels.get(), table.groups.size());
  if (is_new) table.groups.push_back({.labels = labels, .members = {}});
  table.groups[entry->second].members.push_back(member);
}

}  // namespace nccl_exporter::exporter
