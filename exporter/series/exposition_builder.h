// SPDX-License-Identifier: Apache-2.0
// ExpositionBuilder, which adds series to an exposition, counts their samples and can remove the
// latest ones again. For the thread that makes the scrape.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/exposition/exposition.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

// Bytes of labels of one sample. A sample with more counts as several against the limit of series,
// so that the limit bounds the bytes of a page, too: labels may have 128 bytes each, one of them 1,000,
// and are in every line. Labels of a rank in a pod have some 300 bytes, those of nccl_rank_info
// some 900.
inline constexpr size_t kLabelBytesPerSample = 512;

// As how many samples one with that much text in its labels counts.
inline size_t SamplesOfLabels(size_t label_bytes) { return 1 + label_bytes / kLabelBytesPerSample; }

constexpr bool IsAlertSeries(Metric metric) { return RowOf(metric).part == MetricPart::kAlerts; }

class ExpositionBuilder {
 public:
  // Keeps a reference to `exposition`, which is one of ExpositionOfCatalogue(): its families are
  // indexed by Metric.
  explicit ExpositionBuilder(Exposition& exposition)
      : exposition_(exposition),
        has_detail_(std::ranges::any_of(exposition.families, [&](const Family& family) {
          const auto metric = static_cast<Metric>(&family - exposition.families.data());
          return family.is_served && !IsAlertSeries(metric);
        })) {}

  // Sets the time since which all series count that are added later: see Series.
  void CountSince(int64_t created_realtime_ns) { created_realtime_ns_ = created_realtime_ns; }

  // Sets whether more than the alert series of what is added later is taken; it is until the first
  // call.
  void SetDetail(bool takes_detail) { takes_detail_ = takes_detail; }

  LabelsId AddLabels(SharedLabels labels) { return exposition_.Add(std::move(labels)); }
  LabelsId AddLabels(Labels labels) { return exposition_.Add(std::move(labels)); }
  LabelsId AddLabel(std::string_view name, std::string_view value) {
    return AddLabels(Labels{{std::string(name), std::string(value)}});
  }

  // Whether the family takes series now. Series of other families are ignored, so callers need not
  // ask; a caller that asks saves the work of making them.
  bool Serves(Metric metric) const {
    return exposition_.families[static_cast<size_t>(metric)].is_served &&
           (takes_detail_ || IsAlertSeries(metric));
  }
  // Whether any family but those of alerts takes series now.
  bool ServesDetail() const { return has_detail_ && takes_detail_; }

  // `counts` of a histogram must live as long as the exposition: see Keep() and Exposition::owners.
  void Add(Metric metric, LabelsId group_labels, LabelsId variable_labels, double value,
           std::span<const uint64_t> counts = {}) {
    if (!Serves(metric)) return;
    Family& family = exposition_.families[static_cast<size_t>(metric)];
    family.series.push_back({.group_labels = group_labels,
                             .variable_labels = variable_labels,
                             .value = value,
                             .counts = counts,
                             .created_realtime_ns = created_realtime_ns_});
    const size_t label_bytes = exposition_.labels[group_labels]->text().size() +
                               exposition_.labels[variable_labels]->text().size();
    (IsAlertSeries(metric) ? samples_.alerts : samples_.detail) +=
        SamplesPerSeries(family) * SamplesOfLabels(label_bytes);
  }

  // Makes the exposition the owner of `counts`.
  std::span<const uint64_t> Keep(std::vector<uint64_t> counts) {
    auto owned = std::make_shared<const std::vector<uint64_t>>(std::move(counts));
    exposition_.owners.push_back(owned);
    return *owned;
  }

  // Numbers of samples.
  struct Samples {
    size_t alerts = 0;
    size_t detail = 0;

    size_t All() const { return alerts + detail; }
  };
  size_t samples() const { return samples_.All(); }  // so far

  // A state of the exposition, to which RollBack() returns.
  struct Mark {
    std::vector<size_t> series;  // by family
    size_t labels = 0;
    size_t owners = 0;
    Samples samples{};
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
  Samples SamplesSince(const Mark& mark) const {
    return {.alerts = samples_.alerts - mark.samples.alerts,
            .detail = samples_.detail - mark.samples.detail};
  }
  bool HasSince(const Mark& mark, Metric metric) const {
    const auto i = static_cast<size_t>(metric);
    return exposition_.families[i].series.size() > mark.series[i];
  }
  void RollBack(const Mark& mark) {
    for (size_t i = 0; i < exposition_.families.size(); ++i)
      exposition_.families[i].series.resize(mark.series[i]);
    exposition_.labels.resize(mark.labels);
    exposition_.owners.resize(mark.owners);
    samples_ = mark.samples;
  }

 private:
  Exposition& exposition_;
  const bool has_detail_;
  bool takes_detail_ = true;
  Samples samples_{};
  int64_t created_realtime_ns_ = 0;
};

}  // namespace nccl_exporter::exporter
