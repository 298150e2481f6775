// SPDX-License-Identifier: Apache-2.0
// The daemon's own process as the process_* metrics that every Prometheus client library serves.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace nccl_exporter::exporter {

class ProcessCollectable final : public prometheus::Collectable {
 public:
  // Reads /proc each time; a value that cannot be read is left out.
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace nccl_exporter::exporter
