// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/usual_times.h"

namespace nccl_exporter::exporter {

void UsualTimes::Record(const PeerRates& peers, const std::vector<ProcessRates>& processes,
                        size_t most) {
  for (const RankRates& rank : peers.ranks) {
    const double sends = processes[rank.process].p2p_operations;
    if (!rank.busy || sends <= 0) continue;
    std::deque<double>& per_send = ranks_[rank.rank.communicator->rank].per_send;
    per_send.push_back(*rank.busy / sends);
    if (per_send.size() > most) per_send.pop_front();
  }
}

void UsualTimes::Settle() {
  for (auto& [number, rank] : ranks_)
    rank.usual = Quantile(0.5, {rank.per_send.begin(), rank.per_send.end()});
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
