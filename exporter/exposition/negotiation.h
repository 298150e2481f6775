// SPDX-License-Identifier: Apache-2.0
// Negotiation of the format by a scraper's Accept and Accept-Encoding headers. Pure functions of
// untrusted text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nccl_exporter::exporter {

enum class Format : uint8_t { kText, kOpenMetrics, kProtobuf };

// The format that `accept` prefers among those that we have; text 0.0.4 where it names none of
// them.
Format NegotiateFormat(std::string_view accept);

std::string_view ContentType(Format format);

// Longest time that a scrape may take, by its header X-Prometheus-Scrape-Timeout-Seconds: half a
// second less than the header allows, for the way back, or half of it if it is little. Nothing if
// the header is no positive decimal number.
std::optional<std::chrono::nanoseconds> ScrapeBudget(std::string_view timeout_seconds);

// Whether the answer may be sent with Content-Encoding: gzip.
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace nccl_exporter::exporter
