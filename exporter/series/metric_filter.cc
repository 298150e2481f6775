// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/metric_filter.h"

#include <algorithm>
#include <span>

#include "exporter/text/nearest_name.h"
#include "proto/droppable_labels.h"

namespace nccl_exporter::exporter {
namespace {

// A pattern is a family's name, the beginning of names before a '*', or the word for all
// histograms.
bool Matches(const MetricRow& family, std::string_view pattern) {
  if (pattern == kHistograms) return family.type == MetricType::kHistogram;
  if (!pattern.ends_with('*')) return family.name == pattern;
  pattern.remove_suffix(1);
  return family.name.starts_with(pattern);
}

// Each step of the native schema below the plugin's own halves the resolution.
template <typename Buckets>
HistogramScale ScaleOf(std::span<const int> classic_bounds, const MetricFilter& filter) {
  HistogramScale scale;
  if (const std::optional<int> schema = filter.native_schema()) {
    scale.native = {.schema = Buckets::kSchema,
                    .first_bound = Buckets::kFirstBound,
                    .halvings = Buckets::kSchema - *schema};
  }
  if (!filter.has_classic_buckets()) return scale;
  for (const int bound : classic_bounds) {
    const int index = bound - Buckets::kFirstBound;
    scale.bounds.push_back(Buckets::UpperBound(index));
    scale.ends.push_back(static_cast<uint32_t>(index + 1));
  }
  return scale;
}

}  // namespace

std::string MetricFilter::Disable(std::string_view pattern) {
  bool is_known = false;
  std::vector<std::string_view> names{kHistograms};
  for (const MetricRow& family : kMetrics) {
    names.push_back(family.name);
    if (!Matches(family, pattern)) continue;
    disabled_.insert(family.name);
    is_known = true;
  }
  // Nearest to what was typed: mostly a slip of one letter.
  return is_known ? ""
                  : "no family is called '" + std::string(pattern) + "'; the nearest is " +
                        std::string(NearestName(pattern, names));
}

std::string MetricFilter::DropLabel(std::string_view label) {
  const auto row = std::ranges::find(kDroppableLabels, label, &DroppableLabel::name);
  if (row != kDroppableLabels.end()) {
    dropped_.insert(row->name);
    return "";
  }
  std::vector<std::string_view> names;
  for (const DroppableLabel& droppable : kDroppableLabels) names.push_back(droppable.name);
  return "'" + std::string(label) + "' is no label that can be dropped; the nearest is " +
         std::string(NearestName(label, names));
}

std::string MetricFilter::SetClassicBuckets(std::string_view state) {
  if (state != "on" && state != "off") return "it is on or off";
  has_classic_buckets_ = state == "on";
  return "";
}

std::string MetricFilter::SetNativeSchema(std::string_view schema) {
  constexpr std::string_view kSchemas = "0123";
  static_assert(DurationBuckets::kSchema == 3 && BandwidthBuckets::kSchema == 3);
  if (schema == "off") {
    native_schema_.reset();
    return "";
  }
  if (schema.size() != 1 || kSchemas.find(schema.front()) == std::string_view::npos)
    return "it is 0, 1, 2, 3 or off";
  native_schema_ = schema.front() - '0';
  return "";
}

// Metrics and labels that the shipped rules read and would miss: their alerts would stay silent.
std::string MetricFilter::TakenFromRules() const {
  std::string taken;
  const auto add = [&](std::string_view name) {
    taken.append(taken.empty() ? "" : ", ").append(name);
  };
  for (const MetricRow& row : kMetrics) {
    if (row.part == MetricPart::kAlerts && !Serves(row.name)) add(row.name);
  }
  for (const DroppableLabel& label : kDroppableLabels) {
    if (label.is_needed_by_rules && !Keeps(label.name)) add(label.name);
  }
  return taken;
}

Exposition ExpositionOfCatalogue(const MetricFilter& filter, Collect collect) {
  Exposition exposition;
  for (const MetricRow& row : kMetrics) {
    exposition.families.push_back({.name = std::string(row.name),
                                   .help = std::string(row.help),
                                   .unit = std::string(row.unit),
                                   .type = row.type,
                                   .scale = {},
                                   .is_served = filter.Serves(row.name) && Has(collect, row.part),
                                   .series = {}});
  }
  const auto family = [&](Metric metric) -> Family& {
    return exposition.families[static_cast<size_t>(metric)];
  };
  for (const Metric metric :
       {Metric::kCollectiveDuration, Metric::kSendDuration, Metric::kRecvDuration}) {
    if (family(metric).is_served)
      family(metric).scale = ScaleOf<DurationBuckets>(kClassicDurationBounds, filter);
  }
  if (family(Metric::kCollectiveBusBandwidth).is_served)
    family(Metric::kCollectiveBusBandwidth).scale =
        ScaleOf<BandwidthBuckets>(kClassicBandwidthBounds, filter);
  return exposition;
}

}  // namespace nccl_exporter::exporter
