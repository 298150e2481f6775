// SPDX-License-Identifier: Apache-2.0
// Groups and their own labels, rendered once.
#include "exporter/series/function_groups.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace nccl_exporter {
namespace {

FunctionGroup GroupOf(std::vector<Function> functions, std::string_view label, const MetricSwitches& switches) {
  Labels own;
  if (switches.Keeps(label)) own.push_back({std::string(label), std::string(TraitsOf(functions.front()).name)});
  FunctionGroup group{
      .functions = std::move(functions), .labels = std::make_shared<const LabelSet>(own), .sizes = {}, .phases = {}};
  for (const CodeRow<KernelPhase>& phase : kKernelPhases) {
    Labels labels = own;
    labels.push_back({"phase", std::string(phase.name)});
    group.phases.push_back(std::make_shared<const LabelSet>(std::move(labels)));
  }
  if (!switches.Keeps("size")) {
    group.sizes.push_back({.sizes = {}, .labels = group.labels});
    return group;
  }
  for (size_t size = 0; size < kSizeClassCount; ++size) {
    Labels labels = own;
    labels.push_back({"size", std::to_string(kSizeClassBounds[size])});
    group.sizes.push_back(
        {.sizes = {.first = size, .last = size}, .labels = std::make_shared<const LabelSet>(std::move(labels))});
  }
  return group;
}

// Each function by itself, unless `label` is dropped, which tells them apart.
std::vector<FunctionGroup> GroupsOf(const std::vector<Function>& functions, std::string_view label,
                                    const MetricSwitches& switches) {
  if (!switches.Keeps(label)) return {GroupOf(functions, label, switches)};
  std::vector<FunctionGroup> groups;
  for (const Function function : functions) groups.push_back(GroupOf({function}, label, switches));
  return groups;
}

}  // namespace

FunctionGroups::FunctionGroups(const MetricSwitches& switches) {
  std::vector<Function> every;
  std::vector<Function> not_point_to_point;
  for (size_t i = 0; i < kFunctionCount; ++i) {
    const auto function = static_cast<Function>(i);
    every.push_back(function);
    if (!TraitsOf(function).is_point_to_point) not_point_to_point.push_back(function);
  }
  all = GroupsOf(every, "function", switches);
  collectives = GroupsOf(not_point_to_point, "collective", switches);
}

}  // namespace nccl_exporter
