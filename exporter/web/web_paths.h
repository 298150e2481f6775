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

// Followed by the name of an alert or of its runbook (NAME.md).
inline constexpr std::string_view kRunbooksPath = "/docs/runbooks/";

// Files of the page are at their names, as page.css at /page.css. index.html is at kLandingPath,
// and nothing is at its name.
constexpr bool IsWebPath(std::string_view path) {
  const auto is_page_file = [&](const auto& file) {
    return path.starts_with('/') && path.substr(1) == file.first;
  };
  return std::ranges::find(kWebPaths, path) != kWebPaths.end() || path.starts_with(kRunbooksPath) ||
         std::ranges::any_of(kPageFiles, is_page_file);
}

}  // namespace nccl_exporter::exporter
