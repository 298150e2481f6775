// SPDX-License-Identifier: Apache-2.0
// A page of metrics as a stream of samples that the three formats have in common.
#pragma once

#include <functional>
#include <string_view>

namespace nccl_exporter::soak {

enum class PageFormat { kText, kOpenMetrics, kProtobuf };
inline constexpr PageFormat kPageFormats[] = {PageFormat::kText, PageFormat::kOpenMetrics,
                                              PageFormat::kProtobuf};

std::string_view Name(PageFormat format);
// Header that a scraper of that format sends.
std::string_view AcceptHeader(PageFormat format);
// Beginning of the content type of the daemon's answer.
std::string_view ContentType(PageFormat format);

struct PageSample {
  std::string_view key;  // name and labels, in the page's own words; histograms have one for each
                         // bucket, count and sum
  double value = 0;
  bool only_grows = false;     // of a counter or a histogram
  double created_seconds = 0;  // since the epoch; 0 where the format has none
};

// Calls `take` with each sample of the page, whose key lives until `take` returns. False where the
// page is cut off or not in this format.
bool ReadPage(PageFormat format, std::string_view page,
              const std::function<void(const PageSample&)>& take);

}  // namespace nccl_exporter::soak
