// SPDX-License-Identifier: Apache-2.0
// Requests for a page, and their answers.
#include "exporter/web/scrape_page.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/exposition/negotiation.h"
#include "exporter/series/collect.h"

namespace nccl_exporter::exporter {
bool ScrapesInProgress::Begin(const std::string& client) {
  const std::lock_guard lock(mutex_);
  int& count = by_client_[client];
  if (count >= kScrapesPerAddress) return false;
  ++count;
  return true;
}

void ScrapesInProgress::End(const std::string& client) {
  const std::lock_guard lock(mutex_);
  if (--by_client_[client] == 0) by_client_.erase(client);
}

ScrapePage::ScrapePage(BookSource& books, AnswerBudget& budget, size_t series_limit,
                       const MetricFilter& filter, std::string_view commit)
    : daemon_(Limits(series_limit), commit),
      exposition_(books, daemon_, series_limit, filter),
      builder_([&exposition = exposition_](Collect collect) { return exposition.Next(collect); },
               budget) {}

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
  if (!in_progress_->Begin(request.client))
    return Refuse(Refusal::kScrapesPerAddress, "Too many concurrent scrapes of this address\n");
  std::shared_ptr<const void> scrape(
      nullptr, [all = in_progress_, client = request.client](const void*) { all->End(client); });
  const auto start = PageBuilder::Clock::now();
  const auto budget = ScrapeBudget(request.scrape_timeout).value_or(kDefaultScrapeBudget);
  const PageKind kind{.format = NegotiateFormat(request.accept),
                      .is_compressed = AcceptsGzip(request.accept_encoding),
                      .collect = *collect};
  Refusal refusal{};
  Page page = builder_.Get(kind, start + budget, refusal);
  if (page == nullptr) {
    return Refuse(refusal, refusal == Refusal::kScrapeTimeout
                               ? "Not done within the scrape timeout\n"
                               : "No memory for this answer while slow clients take theirs\n");
  }
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
