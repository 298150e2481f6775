// SPDX-License-Identifier: Apache-2.0
// What a request asks for, the page that it gets, and what else may come of it.
#include "exporter/scrape/scrape_page.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/catalogue/collect.h"
#include "exporter/scrape/negotiation.h"

namespace nccl_exporter::exporter {
namespace {

// Counts a scrape as in progress for as long as it lives.
class ScrapeInProgress {
 public:
  explicit ScrapeInProgress(std::shared_ptr<std::atomic<int>> count)
      : count_(std::move(count)), number_(++*count_) {}
  ~ScrapeInProgress() { --*count_; }
  ScrapeInProgress(const ScrapeInProgress&) = delete;
  ScrapeInProgress& operator=(const ScrapeInProgress&) = delete;

  int number() const { return number_; }

 private:
  const std::shared_ptr<std::atomic<int>> count_;
  const int number_;
};

}  // namespace

ScrapePage::ScrapePage(SnapshotSource& snapshots, size_t series_limit, const MetricFilter& filter,
                       std::string_view commit)
    : daemon_(Limits(series_limit), commit),
      exposition_(snapshots, daemon_, series_limit, filter),
      builder_([&exposition = exposition_](Collect collect) { return exposition.Next(collect); }) {}

HttpResponse ScrapePage::Answer(const HttpRequest& request) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : request.query) {
    if (name == kCollectParameter) parts.push_back(value);
  }
  const std::optional<Collect> collect = CollectOf(parts);
  if (!collect) {
    return {.status = 400,
            .headers = {},
            .body = "Unknown value of " + std::string(kCollectParameter) +
                    "; known values: " + KnownParts() + '\n'};
  }
  auto scrape = std::make_shared<ScrapeInProgress>(in_progress_);
  if (scrape->number() > kMaxConcurrentScrapes) {
    return Refuse(Refusal::kConcurrentScrapes, "Too many concurrent scrapes\n");
  }
  const auto start = PageBuilder::Clock::now();
  const auto budget = ScrapeBudget(request.scrape_timeout).value_or(kDefaultScrapeBudget);
  const PageKind kind{.format = NegotiateFormat(request.accept),
                      .is_compressed = AcceptsGzip(request.accept_encoding),
                      .collect = *collect};
  Page page = builder_.Get(kind, start + budget);
  if (page == nullptr)
    return Refuse(Refusal::kScrapeTimeout, "Not done within the scrape timeout\n");
  const auto duration = PageBuilder::Clock::now() - start;
  daemon_.ObserveScrape(duration);
  spdlog::debug("scraped {} bytes in {:.6f} s", page->size(),
                std::chrono::duration<double>(duration).count());

  HttpResponse response{.content_type = std::string(ContentType(kind.format)),
                        .headers = {{"Vary", "Accept, Accept-Encoding"}},
                        .body = {},
                        .shared_body = std::move(page),
                        .until_sent = std::move(scrape)};
  if (kind.is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

HttpResponse ScrapePage::Refuse(Refusal refusal, std::string_view why) {
  daemon_.Count(refusal);
  return {.status = 503, .headers = {{"Retry-After", "1"}}, .body = std::string(why)};
}

}  // namespace nccl_exporter::exporter
