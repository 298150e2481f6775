// SPDX-License-Identifier: Apache-2.0
// The telemetry path: from a request to the answer in the format that the scraper asked for.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "exporter/findings/finding.h"
#include "exporter/http/http_server.h"
#include "exporter/node/snapshot_source.h"
#include "exporter/scrape/daemon_metrics.h"
#include "exporter/scrape/node_exposition.h"
#include "exporter/scrape/page_builder.h"

namespace nccl_exporter::exporter {

// Scrapes that wait for a page or for their client to take it. Concurrent ones share pages; a slow
// client keeps the pages of its own round, of up to some MiB, so there is an end to how many may be
// slow. The next one gets status 503.
inline constexpr int kMaxConcurrentScrapes = 48;

// For scrapers that do not tell their timeout: what Prometheus' default of 10 s leaves.
inline constexpr std::chrono::milliseconds kDefaultScrapeBudget{9500};

class ScrapePage {
 public:
  // `snapshots` outlives this object. `commit` is that of the program, empty if not known.
  explicit ScrapePage(SnapshotSource& snapshots, size_t series_limit = kSeriesLimit,
                      const MetricFilter& filter = {}, std::string_view commit = {});

  HttpResponse Answer(const HttpRequest& request);

  void Count(Refusal refusal) { daemon_.Count(refusal); }
  void SetUnmeasuredProcesses(std::optional<uint64_t> count) {
    daemon_.SetUnmeasuredProcesses(count);
  }
  void SetFindings(const std::vector<Finding>& findings) { daemon_.SetFindings(findings); }

 private:
  HttpResponse Refuse(Refusal refusal, std::string_view why);

  DaemonMetrics daemon_;
  NodeExposition exposition_;  // of the builder's thread
  // Outlived by the answers that are still being sent when the page is gone.
  const std::shared_ptr<std::atomic<int>> in_progress_ = std::make_shared<std::atomic<int>>(0);
  PageBuilder builder_;  // last: its thread uses what is above
};

}  // namespace nccl_exporter::exporter
