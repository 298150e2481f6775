// SPDX-License-Identifier: Apache-2.0
#include "exporter/scrape/node_exposition.h"

#include "exporter/catalogue/metric_filter.h"

namespace nccl_exporter::exporter {

NodeExposition::NodeExposition(SnapshotSource& snapshots, DaemonMetrics& daemon,
                               size_t series_limit, const MetricFilter& filter)
    : snapshots_(snapshots),
      daemon_(daemon),
      series_limit_(series_limit),
      filter_(filter),
      memory_(filter) {}

Exposition NodeExposition::Next() {
  Exposition exposition = ExpositionOfCatalogue(filter_);
  daemon_.CountDrops(AddSnapshotFamilies(snapshots_.Take(), series_limit_, memory_, exposition));
  daemon_.AddTo(exposition);
  return exposition;
}

}  // namespace nccl_exporter::exporter
