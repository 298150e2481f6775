// SPDX-License-Identifier: Apache-2.0
// PageAssets, the files of the daemon's page (page/), its API's document and the runbooks, compiled
// in. Each is compressed once and has an ETag. Immutable after construction: any thread may call.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/http_server.h"

namespace nccl_exporter::exporter {

// Allows nothing from elsewhere and nothing inline. So markup in the name of a communicator cannot
// run as a script.
inline constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

class PageAssets {
 public:
  // `telemetry_path` as --web.telemetry-path takes it: without characters that HTML must escape.
  explicit PageAssets(std::string_view telemetry_path);

  // The file at `request.path`, or its headers only if the client already has it. Status 404 for
  // other paths.
  HttpResponse Answer(const HttpRequest& request) const;

 private:
  struct Asset {
    std::string path;
    std::string_view content_type;
    std::string etag;
    std::shared_ptr<const std::string> plain;
    std::shared_ptr<const std::string> compressed;
  };

  void Add(std::string path, std::string_view content_type, std::string text);

  std::vector<Asset> assets_;
};

}  // namespace nccl_exporter::exporter
