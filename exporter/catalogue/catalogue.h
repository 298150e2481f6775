// SPDX-License-Identifier: Apache-2.0
// The catalogue's rows as empty families, with the scales of the segment's histograms.
#pragma once

#include "exporter/catalogue/metric_switches.h"
#include "exporter/exposition/exposition.h"

namespace nccl_exporter {

// All families of the catalogue, in its order and indexed by Metric, without series.
Exposition ExpositionOfCatalogue(const MetricSwitches& switches = {});

}  // namespace nccl_exporter
