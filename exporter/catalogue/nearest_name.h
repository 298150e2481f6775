// SPDX-License-Identifier: Apache-2.0
// What somebody may have meant.
#pragma once

#include <span>
#include <string_view>

namespace nccl_exporter {

// The name that takes the fewest insertions, deletions and replacements of characters to become `text`, the first of
// equals. `names` is not empty.
std::string_view NearestName(std::string_view text, std::span<const std::string_view> names);

}  // namespace nccl_exporter
