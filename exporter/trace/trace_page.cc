// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/trace_page.h"

#include <optional>
#include <vector>

#include "exporter/exposition/gzip.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/text/duration_text.h"
#include "exporter/trace/chrome_trace.h"
#include "exporter/trace/clock_alignment.h"
#include "exporter/trace/trace_command.h"

namespace nccl_exporter::exporter {

HttpResponse TracePage::Answer(const HttpRequest& request) {
  std::chrono::nanoseconds last = kDefaultTraceLength;
  for (const auto& [name, value] : request.query) {
    const std::optional<std::chrono::nanoseconds> length = ParseDuration(value);
    if (name != "last" || !length || *length > kMostTraceLength)
      return {.status = 400, .headers = {}, .body = "Write ?last=30s; an hour at most\n"};
    last = *length;
  }
  const std::unique_lock lock(is_busy_, std::try_to_lock);
  if (!lock) return {.status = 503, .headers = {}, .body = "Another trace is being made\n"};
  const std::vector<collector::NodeTrace> nodes{record_(last)};
  const ClockAlignment alignment(nodes);
  std::string text = ChromeTrace(alignment);
  HttpResponse response{.content_type = "application/json", .headers = {}, .body = {}};
  response.headers.emplace_back("Vary", "Accept-Encoding");
  response.headers.emplace_back("Cache-Control", "no-store");
  if (AcceptsGzip(request.accept_encoding)) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    text = Gzip(text);
  }
  response.shared_body = budget_.Keep(std::move(text));
  if (response.shared_body == nullptr)
    return {.status = 503, .headers = {}, .body = "No memory for this answer now\n"};
  return response;
}

}  // namespace nccl_exporter::exporter
