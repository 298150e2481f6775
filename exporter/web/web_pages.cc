// SPDX-License-Identifier: Apache-2.0
// Health, readiness, and the ways to the scrape, the page and the API.
#include "exporter/web/web_pages.h"

#include <chrono>
#include <optional>
#include <utility>

#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {

WebPages::WebPages(BookSource& books, ScrapePage& scrape_page, const NodeWatch& watch,
                   AnswerBudget& budget, DaemonFacts facts, TracePage* trace)
    : books_(books),
      scrape_page_(scrape_page),
      telemetry_path_(facts.telemetry_path),
      fault_(facts.fault),
      assets_(telemetry_path_),
      api_(books, watch, std::move(facts), budget,
           [&scrape_page](Refusal refusal) { scrape_page.daemon().Count(refusal); }),
      trace_(trace) {}

HttpResponse WebPages::Answer(const HttpRequest& request) {
  if (request.path == telemetry_path_) return scrape_page_.Answer(request);
  if (request.path == kHealthyPath || request.path == kReadyPath) return AnswerHealth(request);
  if (std::optional<HttpResponse> answer = api_.Answer(request)) return *std::move(answer);
  if (request.path != kTracePath) return assets_.Answer(request);
  return trace_ != nullptr
             ? trace_->Answer(request)
             : TextResponse(404, "Not enabled: start the daemon with --web.enable-debug-trace\n");
}

HttpResponse WebPages::AnswerFindings(const HttpRequest& request) {
  return request.path == kFindingsApiPath ? *api_.Answer(request)
                                          : TextResponse(404, "Not found\n");
}

HttpResponse WebPages::AnswerHealth(const HttpRequest& request) const {
  if (request.path == kHealthyPath) return TextResponse(200, "Healthy\n");
  if (request.path != kReadyPath) return TextResponse(404, "Not found\n");
  if (!books_.is_ready()) return TextResponse(503, "The first snapshot is not taken yet\n");
  if (books_.HangsAt(std::chrono::steady_clock::now()))
    return TextResponse(503, "A snapshot does not end: a segment cannot be read\n");
  const std::string fault = fault_();
  return fault.empty() ? TextResponse(200, "Ready\n") : TextResponse(503, fault + '\n');
}

}  // namespace nccl_exporter::exporter
