// SPDX-License-Identifier: Apache-2.0
// What one scrape leaves to the next.
#pragma once

#include "exporter/catalogue/metric_switches.h"
#include "exporter/series/departed_counts.h"
#include "exporter/series/function_groups.h"
#include "exporter/series/label_cache.h"

namespace nccl_exporter {

// For one scrape after the other, all with the same switches.
struct SeriesMemory {
  explicit SeriesMemory(const MetricSwitches& switches = {}) : labels(switches), functions(switches) {}

  LabelCache labels;
  DepartedCounts departed;
  const FunctionGroups functions;
};

}  // namespace nccl_exporter
