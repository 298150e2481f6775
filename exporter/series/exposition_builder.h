// SPDX-License-Identifier: Apache-2.0
// ExpositionBuilder, which adds series to an exposition, counts their samples and can remove the
// latest ones again. For the thread that makes the scrape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/exposition/exposition.h"

namespace nccl_exporter::exporter {

class ExpositionBuilder {
 public:
  // Keeps a reference to `exposition`, which is one of ExpositionOfCatalogue(): its families are
  // indexed by Metric.
  explicit ExpositionBuilder(Exposition& exposition) : exposition_(exposition) {}

  // Sets the time since which all series count that are added later: see Series.
  void CountSince(int64_t created_realtime_ns) { created_realtime_ns_ = created_realtime_ns; }

  LabelsId AddLabels(SharedLabels labels) { return exposition_.Add(std::move(labels)); }
  LabelsId AddLabels(Labels labels) { return exposition_.Add(std::move(labels)); }
  LabelsId AddLabel(std::string_view name, std::string_view value) {
    return AddLabels(Labels{{std::string(name), std::string(value)}});
  }

  // Whether the family takes series. Series of other families are ignored, so callers need not ask;
  // a caller that asks saves the work of making them.
  bool Serves(Metric metric) const {
    return exposition_.families[static_cast<size_t>(metric)].is_served;
  }

  void Add(Metric metric, LabelsId group_labels, LabelsId variable_labels, double value) {
    AddSeries(metric, {.group_labels = group_labels,
                       .variable_labels = variable_labels,
                       .value = value,
                       .counts = {},
                       .created_realtime_ns = created_realtime_ns_});
  }

  // `counts` must live as long as the exposition: see Keep() and Exposition::owners.
  void AddHistogram(Metric metric, LabelsId group_labels, LabelsId variable_labels, double sum,
                    std::span<const uint64_t> counts) {
    AddSeries(metric, {.group_labels = group_labels,
                       .variable_labels = variable_labels,
                       .value = sum,
                       .counts = counts,
                       .created_realtime_ns = created_realtime_ns_});
  }

  // Makes the exposition the owner of `counts`.
  std::span<const uint64_t> Keep(std::vector<uint64_t> counts) {
    auto owned = std::make_shared<const std::vector<uint64_t>>(std::move(counts));
    exposition_.owners.push_back(owned);
    return *owned;
  }

  size_t samples() const { return samples_; }

  // A state of the exposition, to which RollBack() returns.
  struct Mark {
    std::vector<size_t> series;  // by family
    size_t labels = 0;
    size_t owners = 0;
    size_t samples = 0;
  };
  // Fills a mark. It is set thousands of times per scrape, so one mark is used again to keep its
  // memory.
  void SetMark(Mark& mark) const {
    mark.series.clear();
    for (const Family& family : exposition_.families) mark.series.push_back(family.series.size());
    mark.labels = exposition_.labels.size();
    mark.owners = exposition_.owners.size();
    mark.samples = samples_;
  }
  void RollBack(const Mark& mark) {
    for (size_t i = 0; i < exposition_.families.size(); ++i)
      exposition_.families[i].series.resize(mark.series[i]);
    exposition_.labels.resize(mark.labels);
    exposition_.owners.resize(mark.owners);
    samples_ = mark.samples;
  }

 private:
  void AddSeries(Metric metric, const Series& series) {
    if (!Serves(metric)) return;
    Family& family = exposition_.families[static_cast<size_t>(metric)];
    family.series.push_back(series);
    samples_ += SamplesPerSeries(family);
  }

  Exposition& exposition_;
  size_t samples_ = 0;
  int64_t created_realtime_ns_ = 0;
};

}  // namespace nccl_exporter::exporter
