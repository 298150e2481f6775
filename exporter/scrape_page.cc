// SPDX-License-Identifier: Apache-2.0
// Snapshot, families, encoder, compression.
#include "exporter/scrape_page.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <utility>

#include "exporter/gzip.h"
#include "exporter/negotiation.h"
#include "exporter/openmetrics_encoder.h"
#include "exporter/text_encoder.h"

namespace nccl_exporter {
namespace {

const Encoder& EncoderOf(Format format) {
  static const TextEncoder text;
  static const OpenMetricsEncoder openmetrics;
  switch (format) {
    case Format::kOpenMetrics:
      return openmetrics;
    case Format::kText:
      break;
  }
  return text;
}

// Counts a scrape as in progress for as long as it lives.
class ScrapeInProgress {
 public:
  explicit ScrapeInProgress(std::atomic<int>& count) : count_(count), number_(++count) {}
  ~ScrapeInProgress() { --count_; }
  ScrapeInProgress(const ScrapeInProgress&) = delete;
  ScrapeInProgress& operator=(const ScrapeInProgress&) = delete;

  int number() const { return number_; }

 private:
  std::atomic<int>& count_;
  const int number_;
};

}  // namespace

ScrapePage::ScrapePage(SnapshotSource snapshots, size_t series_limit)
    : snapshots_(std::move(snapshots)), series_limit_(series_limit) {}

HttpResponse ScrapePage::Answer(const HttpRequest& request) {
  const ScrapeInProgress scrape(in_progress_);
  if (scrape.number() > kMaxConcurrentScrapes) {
    return {.status = 503, .headers = {{"Retry-After", "1"}}, .body = "Too many concurrent scrapes\n"};
  }
  const auto start = std::chrono::steady_clock::now();
  HttpResponse response = Scrape(request);
  const auto duration = std::chrono::steady_clock::now() - start;
  daemon_.ObserveScrape(duration);
  spdlog::debug("scraped {} bytes in {:.6f} s", response.body.size(), std::chrono::duration<double>(duration).count());
  return response;
}

HttpResponse ScrapePage::Scrape(const HttpRequest& request) {
  Exposition exposition = ExpositionOfCatalogue();
  daemon_.CountDrops(AddSnapshotFamilies(TakeSnapshot(), series_limit_, exposition));
  daemon_.AddTo(exposition);

  const Format format = NegotiateFormat(request.accept);
  HttpResponse response{
      .content_type = std::string(ContentType(format)), .headers = {{"Vary", "Accept, Accept-Encoding"}}, .body = {}};
  EncoderOf(format).Encode(exposition, response.body);
  if (AcceptsGzip(request.accept_encoding)) {
    response.body = Gzip(response.body);
    response.headers.emplace_back("Content-Encoding", "gzip");
  }
  return response;
}

void ScrapePage::TakeFirstSnapshot() { TakeSnapshot(); }

std::shared_ptr<const NodeSnapshot> ScrapePage::TakeSnapshot() {
  auto snapshot = snapshots_();
  is_ready_ = true;
  return snapshot;
}

}  // namespace nccl_exporter
