// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/network_series.h"

#include <cstdint>
#include <optional>
#include <string>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {
namespace {

constexpr double kNsPerSecond = 1e9;

}  // namespace

NetworkSeries::NetworkSeries(ExpositionBuilder& builder) : builder_(builder) {
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    const std::string direction(kNetworkDirections[i].name);
    direction_labels_[i] = builder.AddLabel("direction", direction);
    for (size_t state = 0; state < kNetworkStateCount; ++state) {
      state_labels_[i][state] = builder.AddLabels(
          {{"direction", direction}, {"state", std::string(kNetworkStates[state].name)}});
    }
  }
}

void NetworkSeries::Add(const SeriesGroup& group, LabelsId labels) const {
  if (!builder_.ServesDetail()) return;
  std::optional<collector::NetworkCounts> sum;
  for (const GroupMember& member : group.members) AddKnown(sum, member.communicator->network);
  for (size_t i = 0; sum && i < kNetworkDirectionCount; ++i) {
    if (sum->directions[i].operations != 0)
      AddDirection(static_cast<NetworkDirection>(i), sum->directions[i], labels);
  }
}

void NetworkSeries::AddBusBytes(const collector::NetworkBusBytes& counts, LabelsId labels) const {
  for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
    if (counts.all[i] == 0) continue;
    builder_.Add(Metric::kNodeNetworkBusBytes, labels, direction_labels_[i],
                 static_cast<double>(counts.all[i]));
    builder_.Add(Metric::kNodeNetworkTimedBusBytes, labels, direction_labels_[i],
                 static_cast<double>(counts.timed[i]));
  }
}

void NetworkSeries::AddPeers(const SeriesGroup& group, LabelsId labels) const {
  const bool serves = builder_.Serves(Metric::kNetworkPeerWaitSeconds) ||
                      builder_.Serves(Metric::kNetworkPeerTimedBytes);
  if (!serves || group.members.size() != 1) return;
  for (const auto& [peer, counts] : group.members.front().communicator->network_peers) {
    const bool is_rank = peer != collector::PeerNetworkCounts::kOthers;
    const std::string name = is_rank ? std::to_string(peer) : "other";
    for (size_t i = 0; i < kNetworkDirectionCount; ++i) {
      if (counts.directions[i].operations != 0)
        AddPeer(name, static_cast<NetworkDirection>(i), counts.directions[i], labels);
    }
  }
}

void NetworkSeries::AddPeer(const std::string& peer, NetworkDirection direction,
                            const collector::NetworkDirectionCounts& counts,
                            LabelsId labels) const {
  const Label of_peer{"peer", peer};
  const Label of_direction{"direction",
                           std::string(kNetworkDirections[static_cast<size_t>(direction)].name)};
  for (const auto& state : kNetworkStates) {
    const std::optional<uint64_t> wait_ns = counts.WaitNs(direction, state.id);
    if (!wait_ns) continue;
    const LabelsId of_state =
        builder_.AddLabels({of_peer, of_direction, {"state", std::string(state.name)}});
    builder_.Add(Metric::kNetworkPeerWaitSeconds, labels, of_state,
                 static_cast<double>(*wait_ns) / kNsPerSecond);
  }
  builder_.Add(Metric::kNetworkPeerTimedBytes, labels, builder_.AddLabels({of_peer, of_direction}),
               static_cast<double>(counts.bytes));
}

void NetworkSeries::AddDirection(NetworkDirection direction,
                                 const collector::NetworkDirectionCounts& counts,
                                 LabelsId labels) const {
  const auto row = static_cast<size_t>(direction);
  for (size_t i = 0; i < kNetworkStateCount; ++i) {
    if (const std::optional<uint64_t> wait_ns =
            counts.WaitNs(direction, static_cast<NetworkState>(i)))
      builder_.Add(Metric::kNetworkWaitSeconds, labels, state_labels_[row][i],
                   static_cast<double>(*wait_ns) / kNsPerSecond);
  }
  builder_.Add(Metric::kNetworkTimedBytes, labels, direction_labels_[row],
               static_cast<double>(counts.bytes));
  builder_.Add(Metric::kNetworkTimedOperations, labels, direction_labels_[row],
               static_cast<double>(counts.operations));
}

}  // namespace nccl_exporter::exporter
