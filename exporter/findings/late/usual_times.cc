// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/usual_times.h"

namespace nccl_exporter::exporter {

void UsualTimes::Record(const PeerRates& peers, const std::vector<ProcessRates>& processes,
                        int64_t number, int64_t most) {
  for (const RankRates& rank : peers.ranks) {
    const double sends = processes[rank.process].p2p_operations;
    if (!rank.busy || sends <= 0) continue;
    ranks_[rank.rank.communicator->rank].per_send.emplace(number, *rank.busy / sends);
  }
  for (auto& [rank, memory] : ranks_)
    memory.per_send.erase(memory.per_send.begin(), memory.per_send.upper_bound(number - most));
  // A rank without a record that counts is forgotten, so that changing numbers take no memory.
  std::erase_if(ranks_, [](const auto& entry) { return entry.second.per_send.empty(); });
}

void UsualTimes::Settle() {
  for (auto& [number, rank] : ranks_) {
    std::vector<double> values;
    for (const auto& [record, seconds] : rank.per_send) values.push_back(seconds);
    rank.usual = Quantile(0.5, std::move(values));
  }
}

void UsualTimes::SubtractFrom(PeerRates& peers, const std::vector<ProcessRates>& processes) const {
  peers.exceeds_usual = true;
  for (RankRates& rank : peers.ranks) {
    const auto found = ranks_.find(rank.rank.communicator->rank);
    if (found == ranks_.end() || !found->second.usual) rank.busy.reset();
    if (!rank.busy) continue;
    rank.expected_busy = *found->second.usual * processes[rank.process].p2p_operations;
    *rank.busy -= rank.expected_busy;
  }
}

}  // namespace nccl_exporter::exporter
