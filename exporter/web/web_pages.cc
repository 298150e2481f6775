// SPDX-License-Identifier: Apache-2.0
// Health, readiness, and the ways to the scrape, the page and the API.
#include "exporter/web/web_pages.h"

#include <chrono>
#include <string_view>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

HttpResponse Text(int status, std::string_view body) {
  return {.status = status, .headers = {}, .body = std::string(body)};
}

}  // namespace

WebPages::WebPages(BookSource& books, ScrapePage& scrape_page, const NodeWatch& watch,
                   AnswerBudget& budget, DaemonFacts facts, TracePage* trace)
    : books_(books),
      scrape_page_(scrape_page),
      telemetry_path_(facts.telemetry_path),
      fault_(facts.fault),
      assets_(telemetry_path_),
      api_(books, watch, std::move(facts), budget),
      trace_(trace) {}

HttpResponse WebPages::Answer(const HttpRequest& request) {
  if (request.path == telemetry_path_) return scrape_page_.Answer(request);
  if (request.path == kHealthyPath || request.path == kReadyPath) return AnswerHealth(request);
  if (request.path == kInFlightPath) return Counted(api_.AnswerInFlight(request));
  if (request.path == kNodeApiPath) return Counted(api_.Answer(request));
  if (request.path == kFindingsApiPath) return Counted(api_.AnswerFindings(request));
  if (request.path == kTracePath) {
    return trace_ != nullptr ? trace_->Answer(request)
                             : Text(404,
                                    "Not enabled: start the daemon with "
                                    "--web.enable-debug-trace\n");
  }
  return assets_.Answer(request);
}

HttpResponse WebPages::Counted(HttpResponse response) {
  if (response.status == 503) scrape_page_.Count(Refusal::kAnswerBytes);
  return response;
}

HttpResponse WebPages::AnswerFindings(const HttpRequest& request) {
  return request.path == kFindingsApiPath ? Counted(api_.AnswerFindings(request))
                                          : Text(404, "Not found\n");
}

HttpResponse WebPages::AnswerHealth(const HttpRequest& request) const {
  if (request.path == kHealthyPath) return Text(200, "Healthy\n");
  if (request.path != kReadyPath) return Text(404, "Not found\n");
  if (!books_.is_ready()) return Text(503, "The first snapshot is not taken yet\n");
  if (books_.HangsAt(std::chrono::steady_clock::now()))
    return Text(503, "A snapshot does not end: a segment cannot be read\n");
  const std::string fault = fault_();
  return fault.empty() ? Text(200, "Ready\n") : Text(503, fault + '\n');
}

}  // namespace nccl_exporter::exporter
