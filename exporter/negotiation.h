// SPDX-License-Identifier: Apache-2.0
// What a scraper wants, by its Accept and Accept-Encoding headers. Pure functions of untrusted text.
#pragma once

#include <cstdint>
#include <string_view>

namespace nccl_exporter {

enum class Format : uint8_t { kText, kOpenMetrics };

// The format that `accept` prefers among those that we have; text 0.0.4 where it names none of them.
Format NegotiateFormat(std::string_view accept);

std::string_view ContentType(Format format);

// Whether the answer may be sent with Content-Encoding: gzip.
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace nccl_exporter
