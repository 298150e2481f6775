// SPDX-License-Identifier: Apache-2.0
#include "exporter/catalogue_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "collector/node_snapshot.h"
#include "exporter/http/refusal.h"
#include "exporter/options.h"
#include "exporter/text/version.h"
#include "proto/droppable_labels.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

// A family whose row ends with this has further labels.
constexpr std::string_view kFurtherLabels = "...";

Json LabelsJson(std::string_view list) {
  Json labels = Json::array();
  while (!list.empty()) {
    const std::string_view label = list.substr(0, list.find(','));
    if (label != kFurtherLabels) labels.push_back(label);
    list.remove_prefix(std::min(list.size(), label.size() + 1));
  }
  return labels;
}

Json FamiliesJson() {
  Json families = Json::array();
  for (const MetricRow& row : kMetrics) {
    families.push_back({{"name", row.name},
                        {"type", RowIn(kMetricTypes, row.type).name},
                        {"unit", row.unit},
                        {"scope", RowIn(kLabelScopes, row.scope).name},
                        {"part", RowIn(kMetricParts, row.part).name},
                        {"labels", LabelsJson(row.labels)},
                        {"has_further_labels", row.labels.ends_with(kFurtherLabels)},
                        {"help", row.help}});
  }
  return families;
}

Json LossesJson() {
  Json losses = Json::array();
  for (const LossTraits& row : kLosses) {
    losses.push_back(
        {{"kind", NameOf(row.kind)}, {"reason", row.reason}, {"meaning", row.meaning}});
  }
  return losses;
}

template <typename Rows>
Json CodesJson(const Rows& rows) {
  Json codes = Json::array();
  for (const auto& row : rows) codes.push_back({{"name", row.name}, {"meaning", row.meaning}});
  return codes;
}

Json OptionsJson() {
  Json options = Json::array();
  for (const OptionRow& row : kOptions) {
    options.push_back({{"name", row.name}, {"default", row.default_value}, {"help", row.help}});
  }
  return options;
}

}  // namespace

std::string CatalogueJson() {
  const Json catalogue{{"version", kVersion},
                       {"families", FamiliesJson()},
                       {"losses", LossesJson()},
                       {"scopes", CodesJson(kLabelScopes)},
                       {"timing_sources", CodesJson(kTimingSources)},
                       {"timing_reasons", CodesJson(kTimingReasons)},
                       {"drift_causes", CodesJson(kDriftCauses)},
                       {"segment_errors", CodesJson(collector::kSegmentErrors)},
                       {"uncompared_reasons", CodesJson(collector::kUncomparedReasons)},
                       {"refusals", CodesJson(kRefusals)},
                       {"options", OptionsJson()}};
  constexpr int kIndent = 1;
  return catalogue.dump(kIndent) + '\n';
}

}  // namespace nccl_exporter::exporter
