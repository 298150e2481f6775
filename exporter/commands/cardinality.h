// SPDX-License-Identifier: Apache-2.0
// Cardinality, the series and bytes of a node's scrape: `nccl-exporter cardinality`. The encoders
// of the daemon write the scrape bodies that are counted; nothing is estimated. Pure functions, for
// any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/catalogue/metric_filter.h"
#include "exporter/scrape/negotiation.h"
#include "exporter/series/snapshot_families.h"

namespace nccl_exporter::exporter {

struct FamilyCost {
  std::string name;
  size_t classic_series = 0;  // in text and OpenMetrics: one per bucket
  size_t native_series = 0;   // in protobuf with native histograms: one per histogram
  std::array<size_t, kFormatCount> bytes{};
};

struct BodyCost {
  size_t bytes = 0;
  size_t compressed_bytes = 0;
};

struct Cardinality {
  std::vector<FamilyCost> families;  // those with series
  size_t classic_series = 0;
  size_t native_series = 0;
  std::array<BodyCost, kFormatCount> bodies{};
  SeriesDrops drops;
};

// The cost of the scrapes of a daemon that serves this snapshot, with its own metrics.
Cardinality CardinalityOf(const std::shared_ptr<const collector::NodeSnapshot>& snapshot,
                          const MetricFilter& filter);

// The same as a table, with the saving of each further flag, and the families that the shipped
// rules miss.
std::string CardinalityText(const std::shared_ptr<const collector::NodeSnapshot>& snapshot,
                            const MetricFilter& filter);

}  // namespace nccl_exporter::exporter
