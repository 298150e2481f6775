// SPDX-License-Identifier: Apache-2.0
// The files that the daemon's page is made of, from page/, compiled in: each compressed once, and told apart by an
// ETag.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/http_server.h"

namespace nccl_exporter {

// Nothing from elsewhere, nothing inline: names of communicators that hold markup stay text whatever the script does.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

class PageAssets {
 public:
  explicit PageAssets(std::string_view telemetry_path);

  // The part at `request.path`, or nothing but its headers where the client has it already; status 404 for other paths.
  HttpResponse Answer(const HttpRequest& request) const;

 private:
  struct Asset {
    std::string_view path;
    std::string_view content_type;
    std::string etag;
    std::shared_ptr<const std::string> plain;
    std::shared_ptr<const std::string> compressed;
  };

  std::vector<Asset> assets_;
};

}  // namespace nccl_exporter
