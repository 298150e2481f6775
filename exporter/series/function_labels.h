// SPDX-License-Identifier: Apache-2.0
// FunctionLabels, the labels of functions and size classes, rendered once per daemon and not again
// at every scrape. Then any thread may read them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/exposition/exposition.h"
#include "exporter/series/metric_filter.h"
#include "proto/collective.h"

namespace nccl_exporter::exporter {

struct SizeRange {
  size_t first = 0;
  size_t last = kSizeClassCount - 1;
};

struct SizeGroup {
  SizeRange sizes;
  SharedLabels labels;  // collective, size
};

struct CollectiveLabels {
  Function function;
  SharedLabels labels;           // collective
  std::vector<SizeGroup> sizes;  // each size class, or one for all where the label is dropped

  // The index of the size class in `sizes`.
  size_t SizeOf(size_t size_class) const { return sizes.size() == 1 ? 0 : size_class; }
};

class FunctionLabels {
 public:
  explicit FunctionLabels(const MetricFilter& filter)
      : splits_durations(filter.splits_durations()) {
    for (size_t i = 0; i < kFunctionCount; ++i) {
      const auto function = static_cast<Function>(i);
      calls[i] = With({}, "function", std::string(TraitsOf(function).name));
      if (!TraitsOf(function).is_point_to_point) collectives.push_back(LabelsOf(function, filter));
    }
    for (size_t size = 0; size < kSizeClassCount; ++size)
      size_alone[size] = With({}, "size", std::to_string(kSizeClassBounds[size]));
  }

  std::array<SharedLabels, kFunctionCount> calls;  // label `function`
  std::vector<CollectiveLabels> collectives;       // without Send and Recv
  const bool splits_durations;                     // histograms of durations have the label `size`
  std::array<SharedLabels, kSizeClassCount> size_alone;  // label `size`, for Send and Recv

 private:
  static SharedLabels With(Labels labels, std::string_view name, std::string value) {
    labels.push_back({std::string(name), std::move(value)});
    return std::make_shared<const LabelSet>(std::move(labels));
  }

  static CollectiveLabels LabelsOf(Function function, const MetricFilter& filter) {
    const Labels name{{"collective", std::string(TraitsOf(function).name)}};
    CollectiveLabels collective{
        .function = function, .labels = std::make_shared<const LabelSet>(name), .sizes = {}};
    if (!filter.Keeps("size")) {
      collective.sizes.push_back({.sizes = {}, .labels = collective.labels});
      return collective;
    }
    for (size_t size = 0; size < kSizeClassCount; ++size) {
      collective.sizes.push_back(
          {.sizes = {.first = size, .last = size},
           .labels = With(name, "size", std::to_string(kSizeClassBounds[size]))});
    }
    return collective;
  }
};

}  // namespace nccl_exporter::exporter
