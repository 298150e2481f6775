// SPDX-License-Identifier: Apache-2.0
// What the daemon tells of itself, kept by prometheus-cpp and converted into the family model.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>

#include "exporter/metric_family.h"
#include "exporter/process_collectable.h"
#include "exporter/snapshot_families.h"

namespace nccl_exporter {

// Safe to use from any thread.
class DaemonMetrics {
 public:
  DaemonMetrics();

  void ObserveScrape(std::chrono::nanoseconds duration);
  void CountDrops(const SeriesDrops& drops);

  // Fills the families of the catalogue that are the daemon's and appends those that are not in it (process_*).
  void AddTo(Exposition& exposition) const;

 private:
  prometheus::Registry registry_;
  ProcessCollectable process_;
  prometheus::Histogram& scrape_duration_;
  prometheus::Family<prometheus::Counter>& series_dropped_;
  prometheus::Counter& series_folded_;
  prometheus::Counter& series_left_out_;
};

}  // namespace nccl_exporter
