// SPDX-License-Identifier: Apache-2.0
// The paths that the daemon serves.
#pragma once

#include <string>
#include <string_view>

#include "exporter/http_server.h"
#include "exporter/scrape_page.h"

namespace nccl_exporter {

inline constexpr std::string_view kLandingPath = "/";
inline constexpr std::string_view kHealthyPath = "/-/healthy";
inline constexpr std::string_view kReadyPath = "/-/ready";
inline constexpr std::string_view kInFlightPath = "/debug/inflight";

class WebPages {
 public:
  // `scrape_page` outlives this object.
  WebPages(ScrapePage& scrape_page, std::string telemetry_path);

  HttpResponse Answer(const HttpRequest& request);

 private:
  HttpResponse LandingPage() const;

  ScrapePage& scrape_page_;
  const std::string telemetry_path_;
};

}  // namespace nccl_exporter
