// SPDX-License-Identifier: Apache-2.0
// What one scrape leaves to the next.
#pragma once

#include "exporter/departed_counts.h"
#include "exporter/function_groups.h"
#include "exporter/label_cache.h"
#include "exporter/metric_switches.h"

namespace nccl_exporter {

// For one scrape after the other, all with the same switches.
struct SeriesMemory {
  explicit SeriesMemory(const MetricSwitches& switches = {}) : labels(switches), functions(switches) {}

  LabelCache labels;
  DepartedCounts departed;
  const FunctionGroups functions;
};

}  // namespace nccl_exporter
