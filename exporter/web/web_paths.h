// SPDX-License-Identifier: Apache-2.0
// The paths that the daemon serves, except that of the metrics.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "exporter/web/page_files.h"  // generated

namespace nccl_exporter::exporter {

inline constexpr std::string_view kLandingPath = "/";
inline constexpr std::string_view kHealthyPath = "/-/healthy";
inline constexpr std::string_view kReadyPath = "/-/ready";
inline constexpr std::string_view kInFlightPath = "/debug/inflight";
inline constexpr std::string_view kTracePath = "/debug/trace";
inline constexpr std::string_view kNodeApiPath = "/api/v1/node";
inline constexpr std::string_view kFindingsApiPath = "/api/v1/findings";

inline constexpr std::string_view kApiDocumentPath = "/docs/api";

inline constexpr std::array kWebPaths{kTracePath,       kLandingPath,    kHealthyPath,
                                      kReadyPath,       kInFlightPath,   kNodeApiPath,
                                      kFindingsApiPath, kApiDocumentPath};

// Whether a file of the page has that path: page.css is at /page.css, and index.html at
// kLandingPath.
constexpr bool IsPageFile(std::string_view path) {
  return path.starts_with('/') &&
         std::ranges::find(kPageFiles, path.substr(1),
                           [](const auto& file) { return file.first; }) != kPageFiles.end();
}

// Followed by the name of an alert or of its runbook (NAME.md).
inline constexpr std::string_view kRunbooksPath = "/docs/runbooks/";

constexpr bool IsWebPath(std::string_view path) {
  return std::ranges::find(kWebPaths, path) != kWebPaths.end() || IsPageFile(path) ||
         path.starts_with(kRunbooksPath);
}

}  // namespace nccl_exporter::exporter
