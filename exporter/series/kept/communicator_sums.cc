// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/kept/communicator_sums.h"

#include <iterator>
#include <utility>

namespace nccl_exporter::exporter {

CommunicatorSums::Sum& CommunicatorSums::Of(const SharedLabels& labels, uint64_t uid,
                                            uint64_t ranks, int64_t created_realtime_ns) {
  const auto [place, is_new] = sums_.try_emplace(labels);
  auto& [owner, sums] = place->second;
  if (is_new) owner = uid;
  auto sum = sums.lower_bound(ranks);
  if (sum != sums.end() && sum->first == ranks) return sum->second;
  if (sums.empty() || further_[owner] < kMostFurtherSums) {
    if (!sums.empty()) ++further_[owner];
    sum = sums.try_emplace(ranks).first;
    sum->second.communicator.created_realtime_ns = created_realtime_ns;
  } else if (sum == sums.end()) {
    auto highest = sums.extract(std::prev(sums.end()));
    highest.key() = ranks;
    sum = sums.insert(std::move(highest)).position;
  }
  sum->second.communicator.ranks = sum->first;
  return sum->second;
}

void CommunicatorSums::AppendTo(const SharedLabels& labels,
                                std::vector<GroupMember>& members) const {
  const auto found = sums_.find(labels);
  if (found == sums_.end()) return;
  for (const auto& [ranks, sum] : found->second.by_ranks) {
    members.push_back({.communicator = &sum.communicator,
                       .counts = sum.counts ? &*sum.counts : nullptr,
                       .has_departed = true});
  }
}

void CommunicatorSums::KeepOnly(const std::set<SharedLabels>& labels) {
  std::erase_if(sums_, [&](const auto& item) { return !labels.contains(item.first); });
  further_.clear();
  for (const auto& [set, sums] : sums_) further_[sums.uid] += sums.by_ranks.size() - 1;
}

}  // namespace nccl_exporter::exporter
