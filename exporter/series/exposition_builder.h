// SPDX-License-Identifier: Apache-2.0
// Adds series to an exposition, counts their samples and can take the latest ones back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/catalogue/catalogue.h"
#include "exporter/exposition/exposition.h"

namespace nccl_exporter {

class ExpositionBuilder {
 public:
  // `exposition` is one of ExpositionOfCatalogue() and outlives this object.
  explicit ExpositionBuilder(Exposition& exposition);

  // Since when the series count that are added from now on: see Series.
  void CountSince(int64_t created_realtime_ns) { created_realtime_ns_ = created_realtime_ns; }

  LabelsId AddLabels(SharedLabels labels) { return exposition_.Add(std::move(labels)); }
  LabelsId AddLabels(Labels labels);
  LabelsId AddLabel(std::string_view name, std::string_view value);

  // Whether series of the family are taken; those of others are ignored.
  bool Serves(Metric metric) const { return exposition_.families[static_cast<size_t>(metric)].is_served; }

  void Add(Metric metric, LabelsId subject, LabelsId own, double value);

  // `counts` must live as long as the exposition: see Keep() and Exposition::owners.
  void AddHistogram(Metric metric, LabelsId subject, LabelsId own, double sum, std::span<const uint64_t> counts);

  // Hands counts over to the exposition.
  std::span<const uint64_t> Keep(std::vector<uint64_t> counts);

  size_t samples() const { return samples_; }

  // What RollBack() returns to.
  struct Mark {
    std::vector<size_t> series;  // by family
    size_t labels = 0;
    size_t owners = 0;
    size_t samples = 0;
  };
  void SetMark(Mark& mark) const;  // fills a mark that may be used again, for it is set thousands of times a scrape
  void RollBack(const Mark& mark);

 private:
  Family& FamilyOf(Metric metric) { return exposition_.families[static_cast<size_t>(metric)]; }

  Exposition& exposition_;
  size_t samples_ = 0;
  int64_t created_realtime_ns_ = 0;
};

}  // namespace nccl_exporter
