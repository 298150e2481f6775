// SPDX-License-Identifier: Apache-2.0
// The telemetry path: from a request to the answer in the format that the scraper asked for.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "collector/node_snapshot.h"
#include "exporter/daemon_metrics.h"
#include "exporter/http_server.h"

namespace nccl_exporter {

// Concurrent scrapes share one snapshot but each builds an answer of up to some MiB: Prometheus in a pair, a colleague
// with curl and one to spare. The next one gets status 503.
inline constexpr int kMaxConcurrentScrapes = 4;

// Where snapshots come from; any thread.
using SnapshotSource = std::function<std::shared_ptr<const NodeSnapshot>()>;

class ScrapePage {
 public:
  explicit ScrapePage(SnapshotSource snapshots, size_t series_limit = kSeriesLimit);

  HttpResponse Answer(const HttpRequest& request);

  // Whether a snapshot was taken, by TakeFirstSnapshot() or a scrape.
  bool is_ready() const { return is_ready_; }
  void TakeFirstSnapshot();
  std::shared_ptr<const NodeSnapshot> TakeSnapshot();

 private:
  HttpResponse Scrape(const HttpRequest& request);

  const SnapshotSource snapshots_;
  const size_t series_limit_;
  DaemonMetrics daemon_;
  std::atomic<int> in_progress_ = 0;
  std::atomic<bool> is_ready_ = false;
};

}  // namespace nccl_exporter
