// SPDX-License-Identifier: Apache-2.0
// NetworkSeries, the series of what timed network operations wait for. For the thread that makes
// the scrape.
#pragma once

#include <array>
#include <string>

#include "exporter/exposition/exposition.h"
#include "exporter/series/exposition_builder.h"
#include "exporter/series/series_group.h"
#include "proto/network_state.h"

namespace nccl_exporter::exporter {

class NetworkSeries {
 public:
  // Keeps a reference to `builder`.
  explicit NetworkSeries(ExpositionBuilder& builder);

  // Adds those of a group, at most ten: the sums of its members, departed ones included. A
  // direction without timed operations has no series. Counts since the builder's present time.
  void Add(const SeriesGroup& group, LabelsId labels) const;

  // Adds what timed bytes are scaled by, at most four: those of a direction that was used.
  void AddBusBytes(const collector::NetworkBusBytes& counts, LabelsId labels) const;

 private:
  void AddDirection(NetworkDirection direction, const collector::NetworkDirectionCounts& counts,
                    LabelsId labels) const;

  ExpositionBuilder& builder_;
  std::array<LabelsId, kNetworkDirectionCount> direction_labels_{};
  std::array<std::array<LabelsId, kNetworkStateCount>, kNetworkDirectionCount>
      state_labels_{};  // by direction, then state
};

}  // namespace nccl_exporter::exporter
