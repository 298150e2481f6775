// SPDX-License-Identifier: Apache-2.0
// The process_* metrics, which every Prometheus client library serves. Any thread.
#pragma once

#include <optional>

#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {

// The value of this process now; nothing if it cannot be read, and for other metrics.
std::optional<double> ProcessReading(Metric metric);

}  // namespace nccl_exporter::exporter
