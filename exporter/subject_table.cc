// SPDX-License-Identifier: Apache-2.0
// Grouping of communicators by label set.
#include "exporter/subject_table.h"

#include <algorithm>

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

void SubjectTable::FoldFrom(size_t first) {
  for (size_t i = first; i < named_.subjects.size(); ++i) {
    for (const Member& member : named_.subjects[i].members) {
      if (!member.has_departed) Add(labels_.OfOthers(*member.process), member, others_);
    }
    named_.index.erase(named_.subjects[i].labels.get());
  }
  named_.subjects.resize(std::min(first, named_.subjects.size()));
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
