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
  for (const GroupMember& member : group.Counted()) AddKnown(sum, member.communicator->network);
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
