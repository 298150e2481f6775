// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter cardinality`: the series and bytes of a node's scrape, by the encoders that serve it.
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

namespace nccl_exporter {

struct FamilyCost {
  std::string name;
  size_t classic_series = 0;  // in text and OpenMetrics: each bucket is one
  size_t native_series = 0;   // in protobuf, where native histograms are not off: a histogram is one
  std::array<size_t, kFormatCount> bytes{};
};

struct PageCost {
  size_t bytes = 0;
  size_t compressed_bytes = 0;
};

struct Cardinality {
  std::vector<FamilyCost> families;  // those with series
  size_t classic_series = 0;
  size_t native_series = 0;
  std::array<PageCost, kFormatCount> pages{};
  SeriesDrops drops;
};

// Of a daemon that serves this snapshot, its own metrics included.
Cardinality CardinalityOf(const std::shared_ptr<const NodeSnapshot>& snapshot, const MetricFilter& filter);

// The same as a table, with what each further switch would save, and what the shipped rules miss.
std::string CardinalityText(const std::shared_ptr<const NodeSnapshot>& snapshot, const MetricFilter& filter);

}  // namespace nccl_exporter
