// SPDX-License-Identifier: Apache-2.0
// The paths that the daemon serves, except that of the metrics.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace nccl_exporter::exporter {

inline constexpr std::string_view kLandingPath = "/";
inline constexpr std::string_view kHealthyPath = "/-/healthy";
inline constexpr std::string_view kReadyPath = "/-/ready";
inline constexpr std::string_view kInFlightPath = "/debug/inflight";
inline constexpr std::string_view kTracePath = "/debug/trace";
inline constexpr std::string_view kNodeApiPath = "/api/v1/node";
inline constexpr std::string_view kFindingsApiPath = "/api/v1/findings";

// Files of the page at kLandingPath.
inline constexpr std::string_view kPageStylePath = "/page.css";
inline constexpr std::string_view kPageScriptPath = "/page.js";
inline constexpr std::string_view kPageChartsPath = "/charts.js";
inline constexpr std::string_view kPageCommunicatorsPath = "/communicators.js";
inline constexpr std::string_view kPageDetailsPath = "/details.js";
inline constexpr std::string_view kPageDomPath = "/dom.js";
inline constexpr std::string_view kPageFindingsPath = "/findings.js";
inline constexpr std::string_view kPageFormatPath = "/format.js";
inline constexpr std::string_view kPageLaterPath = "/later.js";
inline constexpr std::string_view kPageNetworkPath = "/network.js";
inline constexpr std::string_view kPagePlotPath = "/plot.js";
inline constexpr std::string_view kPageTablesPath = "/tables.js";
inline constexpr std::string_view kPageViewPath = "/view.js";
inline constexpr std::string_view kPageWordsPath = "/words.js";
inline constexpr std::string_view kPageIconPath = "/icon.svg";
inline constexpr std::string_view kApiDocumentPath = "/docs/api";

inline constexpr std::array kWebPaths{
    kTracePath,       kLandingPath,      kHealthyPath,           kReadyPath,
    kInFlightPath,    kNodeApiPath,      kFindingsApiPath,       kPageStylePath,
    kPageScriptPath,  kPageChartsPath,   kPageCommunicatorsPath, kPageDetailsPath,
    kPageDomPath,     kPageFindingsPath, kPageFormatPath,        kPageLaterPath,
    kPageNetworkPath, kPagePlotPath,     kPageTablesPath,        kPageViewPath,
    kPageWordsPath,   kPageIconPath,     kApiDocumentPath};

// Followed by the name of an alert or of its runbook (NAME.md).
inline constexpr std::string_view kRunbooksPath = "/docs/runbooks/";

constexpr bool IsWebPath(std::string_view path) {
  return std::ranges::find(kWebPaths, path) != kWebPaths.end() || path.starts_with(kRunbooksPath);
}

}  // namespace nccl_exporter::exporter
