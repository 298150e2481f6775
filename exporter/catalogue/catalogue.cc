// SPDX-License-Identifier: Apache-2.0
#include "exporter/catalogue/catalogue.h"

#include <optional>
#include <string>
#include <vector>

#include "proto/buckets.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter {
namespace {

template <typename Buckets>
HistogramScale ScaleOf(const std::vector<int>& classic_bounds, std::optional<int> schema) {
  HistogramScale scale;
  if (schema) {
    scale.native = {
        .schema = Buckets::kSchema, .first_bound = Buckets::kFirstBound, .halvings = Buckets::kSchema - *schema};
  }
  for (const int bound : classic_bounds) {
    const int index = bound - Buckets::kFirstBound;
    scale.bounds.push_back(Buckets::UpperBound(index));
    scale.ends.push_back(static_cast<uint32_t>(index + 1));
  }
  return scale;
}

}  // namespace

Exposition ExpositionOfCatalogue(const MetricSwitches& switches) {
  Exposition exposition;
  for (const MetricRow& row : kMetrics) {
    exposition.families.push_back({.name = std::string(row.name),
                                   .help = std::string(row.help),
                                   .unit = std::string(row.unit),
                                   .type = row.type,
                                   .scale = {},
                                   .is_served = switches.Serves(row.name),
                                   .series = {}});
  }
  for (const Metric metric : {Metric::kCollectiveDuration, Metric::kSendDuration, Metric::kRecvDuration}) {
    exposition.families[static_cast<size_t>(metric)].scale =
        ScaleOf<DurationBuckets>(switches.duration_bounds(), switches.native_schema());
  }
  exposition.families[static_cast<size_t>(Metric::kCollectiveBusBandwidth)].scale =
      ScaleOf<BandwidthBuckets>(switches.bandwidth_bounds(), switches.native_schema());
  return exposition;
}

}  // namespace nccl_exporter
