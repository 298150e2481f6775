// SPDX-License-Identifier: Apache-2.0
// Compression of answers: a scrape shrinks by more than a factor of ten.
#pragma once

#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// `text` as one gzip member.
std::string Gzip(std::string_view text);

}  // namespace nccl_exporter::exporter
