// SPDX-License-Identifier: Apache-2.0
// FunctionGroups, the functions and size classes of a communicator that are one series: each alone,
// unless the label that distinguishes them is dropped. Made once per daemon; then any thread may
// read it.
#pragma once

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
  SharedLabels labels;  // collective, size; or the kept ones of them
};

struct FunctionGroup {
  std::vector<Function> members;
  SharedLabels labels;           // collective or function, if it is kept
  std::vector<SizeGroup> sizes;  // of collectives

  // The index of the size class in `sizes`, which are all classes, or one for all of them.
  size_t SizeOf(size_t size_class) const { return sizes.size() == 1 ? 0 : size_class; }
};

// The label sets are rendered here, and not again at every scrape.
class FunctionGroups {
 public:
  explicit FunctionGroups(const MetricFilter& filter) {
    std::vector<Function> every;
    std::vector<Function> not_point_to_point;
    for (size_t i = 0; i < kFunctionCount; ++i) {
      const auto function = static_cast<Function>(i);
      every.push_back(function);
      if (!TraitsOf(function).is_point_to_point) not_point_to_point.push_back(function);
    }
    all = GroupsOf(every, "function", filter);
    collectives = GroupsOf(not_point_to_point, "collective", filter);
    splits_durations = filter.splits_durations();
    for (const uint64_t bound : kSizeClassBounds)
      size_alone.push_back(With({}, "size", std::to_string(bound)));
  }

  std::vector<FunctionGroup> all;          // of calls
  std::vector<FunctionGroup> collectives;  // without Send and Recv
  bool splits_durations = false;           // histograms of durations have the label `size`
  std::vector<SharedLabels> size_alone;    // label `size`, for Send and Recv; by size class

 private:
  static SharedLabels With(Labels labels, std::string_view name, std::string value) {
    labels.push_back({std::string(name), std::move(value)});
    return std::make_shared<const LabelSet>(std::move(labels));
  }

  static FunctionGroup GroupOf(std::vector<Function> functions, std::string_view label,
                               const MetricFilter& filter) {
    Labels name;
    if (filter.Keeps(label))
      name.push_back({std::string(label), std::string(TraitsOf(functions.front()).name)});
    FunctionGroup group{.members = std::move(functions),
                        .labels = std::make_shared<const LabelSet>(name),
                        .sizes = {}};
    if (!filter.Keeps("size")) {
      group.sizes.push_back({.sizes = {}, .labels = group.labels});
      return group;
    }
    for (size_t size = 0; size < kSizeClassCount; ++size) {
      group.sizes.push_back({.sizes = {.first = size, .last = size},
                             .labels = With(name, "size", std::to_string(kSizeClassBounds[size]))});
    }
    return group;
  }

  // One group per function, or one for all if `label`, which distinguishes them, is dropped.
  static std::vector<FunctionGroup> GroupsOf(const std::vector<Function>& functions,
                                             std::string_view label, const MetricFilter& filter) {
    if (!filter.Keeps(label)) return {GroupOf(functions, label, filter)};
    std::vector<FunctionGroup> groups;
    for (const Function function : functions) groups.push_back(GroupOf({function}, label, filter));
    return groups;
  }
};

}  // namespace nccl_exporter::exporter
