// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/page_assets.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "exporter/exposition/gzip.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/text/version.h"
#include "exporter/web/document_files.h"  // generated
#include "exporter/web/runbook_files.h"   // generated
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kTextType = "text/plain; charset=utf-8";

std::string_view ContentTypeOf(std::string_view file) {
  if (file.ends_with(".html")) return "text/html; charset=utf-8";
  if (file.ends_with(".css")) return "text/css; charset=utf-8";
  if (file.ends_with(".js")) return "text/javascript; charset=utf-8";
  return file.ends_with(".svg") ? "image/svg+xml" : kTextType;
}

void Replace(std::string& text, std::string_view placeholder, std::string_view value) {
  for (size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, at + value.size())) {
    text.replace(at, placeholder.size(), value);
  }
}

}  // namespace

PageAssets::PageAssets(std::string_view telemetry_path) {
  for (const auto& [file, text] : kPageFiles) {
    std::string page(text);
    Replace(page, "{{version}}", kVersion);
    Replace(page, "{{metrics}}", telemetry_path.substr(1));
    const std::string path =
        file == "index.html" ? std::string(kLandingPath) : '/' + std::string(file);
    Add(path, ContentTypeOf(file), std::move(page));
  }
  Add(std::string(kApiDocumentPath), kTextType, std::string(kDocuments[0].second));
  for (const auto& [file, text] : kRunbooks) {
    const std::string_view alert = file.substr(0, file.rfind('.'));
    Add(std::string(kRunbooksPath) + std::string(alert), kTextType, std::string(text));
  }
}

void PageAssets::Add(std::string path, std::string_view content_type, std::string text) {
  auto plain = std::make_shared<const std::string>(std::move(text));
  auto compressed = std::make_shared<const std::string>(Gzip(*plain));
  assets_.push_back({std::move(path), content_type,
                     fmt::format("{:016x}", std::hash<std::string>()(*plain)), std::move(plain),
                     std::move(compressed)});
}

HttpResponse PageAssets::Answer(const HttpRequest& request) const {
  std::string_view path = request.path;
  if (path.starts_with(kRunbooksPath) && path.ends_with(".md")) path.remove_suffix(3);
  const auto asset = std::ranges::find(assets_, path, &Asset::path);
  if (asset == assets_.end()) return TextResponse(404, "Not found\n");
  const bool is_compressed = AcceptsGzip(request.accept_encoding);
  const std::string etag = '"' + asset->etag + (is_compressed ? "-gzip\"" : "\"");
  HttpResponse response{
      .content_type = std::string(asset->content_type),
      .headers = {{"ETag", etag},
                  {"Cache-Control", "no-cache"},
                  {"Vary", "Accept-Encoding"},
                  {"Content-Security-Policy", std::string(kContentSecurityPolicy)},
                  {"Referrer-Policy", "no-referrer"}},
      .body = {}};
  if (request.if_none_match.find(etag) != std::string::npos) {
    response.status = 304;
    return response;
  }
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.shared_body = is_compressed ? asset->compressed : asset->plain;
  return response;
}

}  // namespace nccl_exporter::exporter
