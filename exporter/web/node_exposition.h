// SPDX-License-Identifier: Apache-2.0
// Expositions of the node, one after the other: a snapshot as series, and the daemon's own metrics.
#pragma once

#include <cstddef>

#include "exporter/exposition/exposition.h"
#include "exporter/ledger/book_source.h"
#include "exporter/series/collect.h"
#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/web/daemon_metrics.h"

namespace nccl_exporter::exporter {

// Used by one thread.
class NodeExposition {
 public:
  // `books` and `daemon` outlive this object.
  NodeExposition(BookSource& books, DaemonMetrics& daemon, size_t series_limit,
                 const MetricFilter& filter);

  // Takes a snapshot for it. The whole or the alert series: what the limit leaves for detail is
  // known with them only.
  Exposition Next(Collect collect);

 private:
  BookSource& books_;
  DaemonMetrics& daemon_;
  const size_t series_limit_;
  const MetricFilter filter_;
  SeriesMemory memory_;  // from one exposition to the next
};

inline NodeExposition::NodeExposition(BookSource& books, DaemonMetrics& daemon, size_t series_limit,
                                      const MetricFilter& filter)
    : books_(books),
      daemon_(daemon),
      series_limit_(series_limit),
      filter_(filter),
      memory_(filter) {}

inline Exposition NodeExposition::Next(Collect collect) {
  Exposition exposition = ExpositionOfCatalogue(filter_, collect);
  daemon_.CountDrops(
      AddSnapshotFamilies(books_.Take(), series_limit_, memory_, exposition, collect));
  daemon_.AddTo(exposition);
  return exposition;
}

}  // namespace nccl_exporter::exporter
