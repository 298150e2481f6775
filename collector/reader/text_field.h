// SPDX-License-Identifier: Apache-2.0
// Text of a segment: a field of fixed size that ends with a NUL or with the field, and that nobody has checked yet.
#pragma once

#include <span>
#include <string>

namespace nccl_exporter {

// The field's text as valid UTF-8: one bad byte in a label value would cost the whole scrape, so each becomes a '?'.
std::string TextOf(std::span<const char> field);

}  // namespace nccl_exporter
