// SPDX-License-Identifier: Apache-2.0
// Compression of answers, and of files: a scrape shrinks by more than a factor of ten.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// `text` as one gzip member.
std::string Gzip(std::string_view text);

// Contents of one or more gzip members. Nothing if they are damaged, or hold more than
// `limit_bytes`.
std::optional<std::string> Decompressed(std::string_view compressed, size_t limit_bytes);

}  // namespace nccl_exporter::exporter
