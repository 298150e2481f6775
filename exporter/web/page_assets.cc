// SPDX-License-Identifier: Apache-2.0
#include "exporter/web/page_assets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "exporter/exposition/gzip.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/web/page_files.h"     // generated
#include "exporter/web/runbook_files.h"  // generated
#include "exporter/text/version.h"
#include "exporter/web/web_paths.h"

namespace nccl_exporter::exporter {
namespace {

struct AssetRow {
  std::string_view path;
  std::string_view content_type;
  std::string_view text;
};

constexpr std::string_view kTextType = "text/plain; charset=utf-8";
constexpr std::string_view kScriptType = "text/javascript; charset=utf-8";

constexpr std::array kAssets{
    AssetRow{kLandingPath, "text/html; charset=utf-8", kFileIndexHtml},
    AssetRow{kPageStylePath, "text/css; charset=utf-8", kFilePageCss},
    AssetRow{kPageScriptPath, kScriptType, kFilePageJs},
    AssetRow{kPageChartsPath, kScriptType, kFileChartsJs},
    AssetRow{kPageCommunicatorsPath, kScriptType, kFileCommunicatorsJs},
    AssetRow{kPageDetailsPath, kScriptType, kFileDetailsJs},
    AssetRow{kPageDomPath, kScriptType, kFileDomJs},
    AssetRow{kPageFindingsPath, kScriptType, kFileFindingsJs},
    AssetRow{kPageFormatPath, kScriptType, kFileFormatJs},
    AssetRow{kPageLaterPath, kScriptType, kFileLaterJs},
    AssetRow{kPageNetworkPath, kScriptType, kFileNetworkJs},
    AssetRow{kPagePlotPath, kScriptType, kFilePlotJs},
    AssetRow{kPageTablesPath, kScriptType, kFileTablesJs},
    AssetRow{kPageViewPath, kScriptType, kFileViewJs},
    AssetRow{kPageWordsPath, kScriptType, kFileWordsJs},
    AssetRow{kPageIconPath, "image/svg+xml", kFileIconSvg},
    AssetRow{kApiDocumentPath, kTextType, kFileApiMd},
};

// `text` for the content of an element, or for an attribute in double quotes.
std::string HtmlText(std::string_view text) {
  constexpr std::array<std::pair<char, std::string_view>, 3> kEscapes{
      {{'&', "&amp;"}, {'<', "&lt;"}, {'"', "&quot;"}}};
  std::string html;
  for (const char character : text) {
    const auto escape =
        std::ranges::find(kEscapes, character, &std::pair<char, std::string_view>::first);
    if (escape == kEscapes.end()) {
      html += character;
    } else {
      html += escape->second;
    }
  }
  return html;
}

void Replace(std::string& text, std::string_view placeholder, std::string_view value) {
  for (size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, at + value.size())) {
    text.replace(at, placeholder.size(), value);
  }
}

// FNV-1a. It distinguishes versions of these files, and must not be used against an attacker.
std::string EtagOf(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char character : text)
    hash = (hash ^ static_cast<uint8_t>(character)) * 1099511628211u;
  return fmt::format("{:016x}", hash);
}

}  // namespace

PageAssets::PageAssets(std::string_view telemetry_path) {
  for (const AssetRow& row : kAssets) {
    std::string text(row.text);
    Replace(text, "{{version}}", kVersion);
    Replace(text, "{{metrics}}", HtmlText(telemetry_path.substr(1)));
    Add(std::string(row.path), row.content_type, std::move(text));
  }
  for (const auto& [name, text] : kRunbooks)
    Add(std::string(kRunbooksPath) + std::string(name), kTextType, std::string(text));
}

void PageAssets::Add(std::string path, std::string_view content_type, std::string text) {
  auto plain = std::make_shared<const std::string>(std::move(text));
  auto compressed = std::make_shared<const std::string>(Gzip(*plain));
  assets_.push_back({std::move(path), content_type, EtagOf(*plain), std::move(plain),
                     std::move(compressed)});
}

HttpResponse PageAssets::Answer(const HttpRequest& request) const {
  std::string_view path = request.path;
  if (path.starts_with(kRunbooksPath) && path.ends_with(".md")) path.remove_suffix(3);
  const auto asset = std::ranges::find(assets_, path, &Asset::path);
  if (asset == assets_.end()) return {.status = 404, .headers = {}, .body = "Not found\n"};
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
