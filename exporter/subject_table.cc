// SPDX-License-Identifier: Apache-2.0
// Grouping of communicators by label set.
#include "exporter/subject_table.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace nccl_exporter {

const Member& Subject::Newest() const {
  const auto age = [](const Member& member) {
    return std::tuple(member.process->is_alive && !member.communicator->is_closed,
                      member.communicator->created_realtime_ns, member.communicator->generation);
  };
  return *std::ranges::max_element(members, [&](const Member& a, const Member& b) { return age(a) < age(b); });
}

int64_t Subject::CreatedRealtimeNs() const {
  int64_t created = std::numeric_limits<int64_t>::max();
  for (const Member& member : members) created = std::min(created, member.communicator->created_realtime_ns);
  return created;
}

SubjectTable::SubjectTable(const NodeSnapshot& snapshot, LabelCache& labels) : labels_(labels) {
  for (const ProcessSnapshot& process : snapshot.processes) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      const Member member{&process, &communicator};
      if (communicator.is_overflow) {
        others_.Add(labels_.OfOthers(process), member);
      } else if (communicator.has_identity) {
        named_.Add(labels_.Of(process, communicator).series, member);
      }
    }
  }
}

void SubjectTable::FoldFrom(size_t first) {
  for (size_t i = first; i < named_.subjects.size(); ++i) {
    for (const Member& member : named_.subjects[i].members) {
      others_.Add(labels_.OfOthers(*member.process), member);
    }
    named_.index.erase(named_.subjects[i].labels.get());
  }
  named_.subjects.resize(std::min(first, named_.subjects.size()));
}

void SubjectTable::Group::Add(const SharedLabels& labels, const Member& member) {
  const auto [entry, is_new] = index.try_emplace(labels.get(), subjects.size());
  if (is_new) subjects.push_back({.labels = labels, .members = {}});
  subjects[entry->second].members.push_back(member);
}

}  // namespace nccl_exporter
