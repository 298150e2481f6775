// SPDX-License-Identifier: Apache-2.0
#include "exporter/scrape/node_exposition.h"

#include "exporter/catalogue/catalogue.h"

namespace nccl_exporter {

NodeExposition::NodeExposition(SnapshotSource& snapshots, DaemonMetrics& daemon, size_t series_limit,
                               const MetricSwitches& switches)
    : snapshots_(snapshots), daemon_(daemon), series_limit_(series_limit), switches_(switches), memory_(switches) {}

Exposition NodeExposition::Next() {
  Exposition exposition = ExpositionOfCatalogue(switches_);
  daemon_.CountDrops(AddSnapshotFamilies(snapshots_.Take(), series_limit_, memory_, exposition));
  daemon_.AddTo(exposition);
  return exposition;
}

}  // namespace nccl_exporter
