// SPDX-License-Identifier: Apache-2.0
// The telemetry path: from a request to the answer in the format that the scraper asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/findings/finding.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/http_server.h"
#include "exporter/ledger/book_source.h"
#include "exporter/web/daemon_metrics.h"
#include "exporter/web/node_exposition.h"
#include "exporter/web/page_builder.h"

namespace nccl_exporter::exporter {

// Scrapes of one address that wait for a page or for their client to take it: two Prometheus
// servers with two scrape jobs each. The next one gets status 503.
inline constexpr int kScrapesPerAddress = 4;

// Time for scrapers that name no timeout: the rest of Prometheus' default of 10 s.
inline constexpr std::chrono::milliseconds kDefaultScrapeBudget{9500};

// Scrapes from their request to the end of their answer. Any thread.
class ScrapesInProgress {
 public:
  // Whether one more of that address may begin; then End() follows.
  bool Begin(const std::string& client);
  void End(const std::string& client);

 private:
  std::mutex mutex_;
  std::map<std::string, int> by_client_;
};

class ScrapePage {
 public:
  // `books` and `budget` outlive this object. `commit` is that of the program, empty if not
  // known.
  ScrapePage(BookSource& books, AnswerBudget& budget, size_t series_limit = kSeriesLimit,
             const MetricFilter& filter = {}, std::string_view commit = {});

  HttpResponse Answer(const HttpRequest& request);

  void Count(Refusal refusal) { daemon_.Count(refusal); }
  void SetUnmeasuredProcesses(std::optional<uint64_t> count) {
    daemon_.SetUnmeasuredProcesses(count);
  }
  void SetFindings(const std::vector<Finding>& findings) { daemon_.SetFindings(findings); }
  // Since the daemon's start. For one thread.
  void SetDroppedLogLines(uint64_t lines) { daemon_.SetDroppedLogLines(lines); }

 private:
  HttpResponse Refuse(Refusal refusal, std::string_view why);

  DaemonMetrics daemon_;
  NodeExposition exposition_;  // of the builder's thread
  // Outlived by the answers that are still being sent when the page is gone.
  const std::shared_ptr<ScrapesInProgress> in_progress_ = std::make_shared<ScrapesInProgress>();
  PageBuilder builder_;  // last: its thread uses what is above
};

}  // namespace nccl_exporter::exporter
