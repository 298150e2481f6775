// SPDX-License-Identifier: Apache-2.0
// Landing page, health, readiness and the way to the scrape.
#include "exporter/web_pages.h"

#include <fmt/format.h>

#include <utility>

#include "exporter/in_flight_table.h"
#include "exporter/version.h"

namespace nccl_exporter {
namespace {

std::string HtmlText(std::string_view text) {
  std::string html;
  for (const char character : text) {
    switch (character) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += character;
    }
  }
  return html;
}

HttpResponse Text(int status, std::string_view body) {
  return {.status = status, .headers = {}, .body = std::string(body)};
}

}  // namespace

WebPages::WebPages(ScrapePage& scrape_page, std::string telemetry_path)
    : scrape_page_(scrape_page), telemetry_path_(std::move(telemetry_path)) {}

HttpResponse WebPages::Answer(const HttpRequest& request) {
  if (request.path == telemetry_path_) return scrape_page_.Answer(request);
  if (request.path == kHealthyPath) return Text(200, "Healthy\n");
  if (request.path == kReadyPath) {
    return scrape_page_.is_ready() ? Text(200, "Ready\n") : Text(503, "The first snapshot is not taken yet\n");
  }
  if (request.path == kInFlightPath) return Text(200, InFlightText(*scrape_page_.TakeSnapshot()));
  if (request.path == kLandingPath) return LandingPage();
  return Text(404, "Not found\n");
}

HttpResponse WebPages::LandingPage() const {
  constexpr std::string_view kPage = R"(<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>nccl-exporter</title></head>
<body>
<h1>nccl-exporter</h1>
<p>Metrics of the NCCL communicators on this node. Version {version}.</p>
<ul>
<li><a href="{telemetry}">Metrics</a></li>
<li><a href="{inflight}">Collectives in flight</a></li>
<li><a href="{healthy}">Health</a></li>
<li><a href="{ready}">Readiness</a></li>
</ul>
</body>
</html>
)";
  return {.content_type = "text/html; charset=utf-8",
          .headers = {},
          .body = fmt::format(kPage, fmt::arg("version", kVersion), fmt::arg("telemetry", HtmlText(telemetry_path_)),
                              fmt::arg("inflight", kInFlightPath), fmt::arg("healthy", kHealthyPath),
                              fmt::arg("ready", kReadyPath))};
}

}  // namespace nccl_exporter
