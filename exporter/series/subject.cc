// SPDX-License-Identifier: Apache-2.0
// Which members speak for a subject.
#include "exporter/series/subject.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace nccl_exporter {

const Member& Subject::Newest() const {
  const auto age = [](const Member& member) {
    return std::tuple(!member.has_departed, member.IsInUse(), member.communicator->created_realtime_ns,
                      member.communicator->generation);
  };
  return *std::ranges::max_element(members, {}, age);
}

std::vector<const Member*> Subject::InUse() const {
  std::vector<const Member*> in_use;
  for (const Member& member : members) {
    if (member.IsInUse()) in_use.push_back(&member);
  }
  if (in_use.empty()) in_use.push_back(&Newest());
  return in_use;
}

int64_t Subject::CreatedRealtimeNs() const {
  int64_t created = std::numeric_limits<int64_t>::max();
  for (const Member& member : members) created = std::min(created, member.communicator->created_realtime_ns);
  return created;
}

}  // namespace nccl_exporter
