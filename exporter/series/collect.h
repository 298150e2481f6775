// SPDX-License-Identifier: Apache-2.0
// Collect, the parts of the metrics that a scrape asks for by the parameter collect[]. Pure
// functions, for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "exporter/exposition/exposition.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

inline constexpr std::string_view kCollectParameter = "collect[]";

enum class Collect : uint8_t { kWhole, kAlerts, kDetail };

constexpr bool Has(Collect collect, MetricPart part) {
  return collect == Collect::kWhole ||
         (collect == Collect::kAlerts) == (part == MetricPart::kAlerts);
}

// The selection of these parts by their names; without a name, all parts. Nothing if a name is
// unknown.
inline std::optional<Collect> CollectOf(std::span<const std::string> names) {
  bool has_alerts = names.empty(), has_detail = names.empty();
  for (const std::string& name : names) {
    const auto row = std::ranges::find(kMetricParts, name, &CodeRow<MetricPart>::name);
    if (row == kMetricParts.end()) return std::nullopt;
    (row->id == MetricPart::kAlerts ? has_alerts : has_detail) = true;
  }
  if (has_alerts && has_detail) return Collect::kWhole;
  return has_alerts ? Collect::kAlerts : Collect::kDetail;
}

// The names that CollectOf() knows, separated by commas.
inline std::string KnownParts() {
  std::string known;
  for (const CodeRow<MetricPart>& row : kMetricParts)
    known.append(known.empty() ? "" : ", ").append(row.name);
  return known;
}

// Removes the series of other parts from an exposition of ExpositionOfCatalogue(). Families behind
// those of the catalogue are of extensions, and detail.
inline void KeepOnly(Collect collect, Exposition& exposition) {
  for (size_t i = 0; i < exposition.families.size(); ++i) {
    const MetricPart part = i < kMetricCount ? kMetrics[i].part : MetricPart::kDetail;
    if (!Has(collect, part)) exposition.families[i].series.clear();
  }
}

}  // namespace nccl_exporter::exporter
