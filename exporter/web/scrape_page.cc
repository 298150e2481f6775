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

ScrapePage::ScrapePage(BookSource& books, AnswerBudget& budget, size_t series_limit,
                       const MetricFilter& filter, std::string_view commit,
                       std::string extension_socket)
    : books_(books),
      series_limit_(series_limit),
      filter_(filter),
      daemon_(Limits(series_limit), commit),
      extensions_(std::move(extension_socket)),
      memory_(filter),
      builder_([this](Collect collect) { return Expose(collect); }, budget) {}

Exposition ScrapePage::Expose(Collect collect) {
  Exposition exposition = ExpositionOfCatalogue(filter_, collect);
  daemon_.CountDrops(
      AddSnapshotFamilies(books_.Take(), series_limit_, memory_, exposition, collect));
  daemon_.AddTo(exposition);
  if (Has(collect, MetricPart::kDetail)) extensions_.AddTo(exposition);
  return exposition;
}

std::shared_ptr<const void> ScrapePage::Begin(const std::string& client) {
  {
    const std::lock_guard lock(in_progress_->mutex);
    int& count = in_progress_->by_client[client];
    if (count == kScrapesPerAddress) return nullptr;
    ++count;
  }
  return {this, [all = in_progress_, client](const void*) {
            const std::lock_guard lock(all->mutex);
            if (--all->by_client[client] == 0) all->by_client.erase(client);
          }};
}

HttpResponse ScrapePage::Answer(const HttpRequest& request) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : request.query) {
    if (name == kCollectParameter) parts.push_back(value);
  }
  const std::optional<Collect> collect = CollectOf(parts);
  if (!collect) {
    return TextResponse(400, "Unknown value of " + std::string(kCollectParameter) +
                                 "; known values: " + KnownParts() + '\n');
  }
  std::shared_ptr<const void> scrape = Begin(request.client);
  if (scrape == nullptr)
    return Refuse(Refusal::kScrapesPerAddress, "Too many concurrent scrapes of this address\n");
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

HttpResponse ScrapePage::Refuse(Refusal refusal, std::string why) {
  daemon_.Count(refusal);
  return BusyResponse(std::move(why));
}

}  // namespace nccl_exporter::exporter
