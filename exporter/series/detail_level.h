// SPDX-License-Identifier: Apache-2.0
// DetailLevel, how much of a communicator a scrape holds. Pure functions, for any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

// Each level has what the one before it has, and more.
enum class DetailLevel : uint8_t {
  kFolded,       // nothing: the communicator is part of comm="other"
  kAlerts,       // what rules read
  kCollectives,  // all but histograms, with sums over the size classes
  kSizes,        // the same, with size classes instead of their sums
  kAll,          // with histograms
  kCount
};
inline constexpr size_t kDetailLevelCount = static_cast<size_t>(DetailLevel::kCount);

// The first level that has all series of the family.
constexpr DetailLevel LevelOf(const MetricRow& row) {
  if (row.part == MetricPart::kAlerts) return DetailLevel::kAlerts;
  if (row.type == MetricType::kHistogram) return DetailLevel::kAll;
  return row.labels.ends_with(",size") ? DetailLevel::kSizes : DetailLevel::kCollectives;
}

// By Metric.
inline constexpr auto kLevelsOfMetrics = [] {
  std::array<DetailLevel, kMetricCount> levels{};
  for (size_t i = 0; i < kMetricCount; ++i) levels[i] = LevelOf(kMetrics[i]);
  return levels;
}();
static_assert(kLevelsOfMetrics[static_cast<size_t>(Metric::kCollectiveBytes)] ==
              DetailLevel::kSizes);

constexpr DetailLevel LevelOf(Metric metric) {
  return kLevelsOfMetrics[static_cast<size_t>(metric)];
}

}  // namespace nccl_exporter::exporter
