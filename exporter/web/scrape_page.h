// SPDX-License-Identifier: Apache-2.0
// The telemetry path: from a request to the answer in the format that the scraper asked for.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "exporter/http/answer_budget.h"
#include "exporter/http/http_server.h"
#include "exporter/ledger/book_source.h"
#include "exporter/series/metric_filter.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/web/daemon_metrics.h"
#include "exporter/web/extension_families.h"
#include "exporter/web/page_builder.h"

namespace nccl_exporter::exporter {

// Scrapes of one address that wait for a page or for their client to take it: two Prometheus
// servers with two scrape jobs each. The next one gets status 503.
inline constexpr int kScrapesPerAddress = 4;

// Time for scrapers that name no timeout: the rest of Prometheus' default of 10 s.
inline constexpr std::chrono::milliseconds kDefaultScrapeBudget{9500};

class ScrapePage {
 public:
  // `books` and `budget` outlive this object. `commit` is that of the program, empty if not
  // known; `extension_socket` as of ExtensionFamilies.
  ScrapePage(BookSource& books, AnswerBudget& budget, size_t series_limit = kSeriesLimit,
             const MetricFilter& filter = {}, std::string_view commit = {},
             std::string extension_socket = {});

  HttpResponse Answer(const HttpRequest& request);

  // For what happens elsewhere in the daemon.
  DaemonMetrics& daemon() { return daemon_; }
  ExtensionFamilies& extensions() { return extensions_; }

 private:
  // Scrapes from their request to the end of their answer.
  struct InProgress {
    std::mutex mutex;
    std::map<std::string, int> by_client;
  };

  // A scrape of that address, until the result is released; null if there are too many. Any thread.
  std::shared_ptr<const void> Begin(const std::string& client);
  HttpResponse Refuse(Refusal refusal, std::string why);
  // The whole or the alert series of a snapshot, and the daemon's own metrics: what the limit
  // leaves for detail is known with the alert series only. On the builder's thread.
  Exposition Expose(Collect collect);

  BookSource& books_;
  const size_t series_limit_;
  const MetricFilter filter_;
  DaemonMetrics daemon_;
  ExtensionFamilies extensions_;
  SeriesMemory memory_;  // from one exposition to the next
  // Outlived by the answers that are still being sent when the page is gone.
  const std::shared_ptr<InProgress> in_progress_ = std::make_shared<InProgress>();
  PageBuilder builder_;  // last: its thread uses what is above
};

}  // namespace nccl_exporter::exporter
