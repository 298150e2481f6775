// SPDX-License-Identifier: Apache-2.0
// Grouping of communicators by label set.
#include "exporter/series/subject_table.h"

#include <utility>

namespace nccl_exporter {

SubjectTable::SubjectTable(const NodeSnapshot& snapshot, LabelCache& labels, const DepartedCounts& departed)
    : labels_(labels), departed_(departed) {
  for (const ProcessSnapshot& process : snapshot.processes) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      const Member member{&process, &communicator};
      if (communicator.is_overflow) {
        Add(labels_.OfOthers(process), member, others_);
      } else if (communicator.has_identity) {
        Add(labels_.Of(process, communicator).series, member, named_);
      }
    }
  }
}

void SubjectTable::Fold(const std::vector<size_t>& subjects) {
  for (const size_t i : subjects) {
    for (const Member& member : named_.subjects[i].members) {
      if (!member.has_departed) Add(labels_.OfOthers(*member.process), member, others_);
    }
  }
  // From here on named_ is only read; its index is not kept up.
  size_t next = 0, kept = 0;
  for (size_t i = 0; i < named_.subjects.size(); ++i) {
    if (next < subjects.size() && subjects[next] == i) {
      ++next;
    } else if (kept++ != i) {
      named_.subjects[kept - 1] = std::move(named_.subjects[i]);
    }
  }
  named_.subjects.resize(kept);
  named_.index.clear();
}

void SubjectTable::Add(const SharedLabels& labels, const Member& member, Group& group) {
  const auto [entry, is_new] = group.index.try_emplace(labels.get(), group.subjects.size());
  if (is_new) {
    group.subjects.push_back({.labels = labels, .members = {}});
    departed_.AppendTo(labels, group.subjects.back().members);
  }
  group.subjects[entry->second].members.push_back(member);
}

}  // namespace nccl_exporter
