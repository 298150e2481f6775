// SPDX-License-Identifier: Apache-2.0
// Series, label sets and their bookkeeping.
#include "exporter/series/exposition_builder.h"

#include <memory>
#include <string>
#include <utility>

namespace nccl_exporter {

ExpositionBuilder::ExpositionBuilder(Exposition& exposition) : exposition_(exposition) {}

LabelsId ExpositionBuilder::AddLabels(Labels labels) { return exposition_.Add(std::move(labels)); }

LabelsId ExpositionBuilder::AddLabel(std::string_view name, std::string_view value) {
  return AddLabels({{std::string(name), std::string(value)}});
}

void ExpositionBuilder::Add(Metric metric, LabelsId subject, LabelsId own, double value) {
  if (!Serves(metric)) return;
  FamilyOf(metric).series.push_back({.group_labels = subject,
                                     .variable_labels = own,
                                     .value = value,
                                     .counts = {},
                                     .created_realtime_ns = created_realtime_ns_});
  ++samples_;
}

void ExpositionBuilder::AddHistogram(Metric metric, LabelsId subject, LabelsId own, double sum,
                                     std::span<const uint64_t> counts) {
  if (!Serves(metric)) return;
  Family& family = FamilyOf(metric);
  family.series.push_back({.group_labels = subject,
                           .variable_labels = own,
                           .value = sum,
                           .counts = counts,
                           .created_realtime_ns = created_realtime_ns_});
  samples_ += SamplesPerSeries(family);
}

std::span<const uint64_t> ExpositionBuilder::Keep(std::vector<uint64_t> counts) {
  auto owned = std::make_shared<const std::vector<uint64_t>>(std::move(counts));
  exposition_.owners.push_back(owned);
  return *owned;
}

void ExpositionBuilder::SetMark(Mark& mark) const {
  mark.series.clear();
  for (const Family& family : exposition_.families) mark.series.push_back(family.series.size());
  mark.labels = exposition_.labels.size();
  mark.owners = exposition_.owners.size();
  mark.samples = samples_;
}

void ExpositionBuilder::RollBack(const Mark& mark) {
  for (size_t i = 0; i < exposition_.families.size(); ++i) exposition_.families[i].series.resize(mark.series[i]);
  exposition_.labels.resize(mark.labels);
  exposition_.owners.resize(mark.owners);
  samples_ = mark.samples;
}

}  // namespace nccl_exporter
