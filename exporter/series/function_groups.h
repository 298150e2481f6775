// SPDX-License-Identifier: Apache-2.0
// Which functions and size classes of a communicator are one series: each its own, unless the label is dropped that
// tells them apart.
#pragma once

#include <cstddef>
#include <vector>

#include "exporter/catalogue/metric_switches.h"
#include "exporter/exposition/label_set.h"
#include "proto/collective.h"

namespace nccl_exporter {

struct SizeRange {
  size_t first = 0;
  size_t last = kSizeClassCount - 1;
};

struct SizeGroup {
  SizeRange sizes;
  SharedLabels labels;  // collective, size; or what is kept of them
};

struct FunctionGroup {
  std::vector<Function> functions;
  SharedLabels labels;               // collective or function, if it is kept
  std::vector<SizeGroup> sizes;      // of collectives
  std::vector<SharedLabels> phases;  // collective, phase; by KernelPhase
};

struct FunctionGroups {
  explicit FunctionGroups(const MetricSwitches& switches);

  std::vector<FunctionGroup> all;          // of calls
  std::vector<FunctionGroup> collectives;  // without Send and Recv
};

}  // namespace nccl_exporter
